




import pyarrow.csv
import pyarrow.parquet as pq

table = pyarrow.csv.read_csv("penguins.csv", convert_options=pyarrow.csv.ConvertOptions(null_values=["NA"]))
pq.write_table(table.slice(0, 200), "penguins-1.parquet")
pq.write_table(table.slice(200), "penguins-2.parquet")
