"""Partition a data set over silos, or turn a site's own data into its shard."""
