from .examination import examine as examine
