




















































# penguin.py
SPECIES = ["Adelie", "Chinstrap", "Gentoo"]
NUMBERS = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]


def to_numbers(row):
    if any(row[name] is None for name in NUMBERS):
        return None  # leaves the row out
    return {"species": SPECIES.index(row["species"]), **{name: float(row[name]) for name in NUMBERS}}
