"""All that is to be found out on a machine with a GPU, in one command: python -m scripts.gpu_day --out DIR"""
