"""Any report as one self-contained HTML file: tables, figures, a timeline; no network."""
