"""Written datasets: `load`, `show`, `verify`, `diff` and `repair`. Nothing here imports Beam."""
