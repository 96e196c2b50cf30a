






































import dataclasses

mass = dataclasses.replace(schema["body_mass_g"], default=4000)
schema = schema.edit(body_mass_g=mass, sex=None)  # a default for readers, and one column less
bt.write("penguins.csv", "edited/", schema=schema, source_options={"null_words": ["NA"]})
bt.load("edited/", columns=["body_mass_g"]).numpy()  # readers use the default
