





from pathlib import Path

rows = Path("penguins.csv").read_text().splitlines()
rows[4] = "Adelie,Torgersen,unknown,18,195,3250,female,2007"
Path("stray.csv").write_text("\n".join(rows))
