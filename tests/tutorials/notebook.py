"""notebook.py NOTEBOOK TIMEOUT: executes the notebook in a new kernel and prints what its cells printed. Fails if a cell
does, takes longer than TIMEOUT seconds, or if no figure is displayed. 77 without nbclient and ipykernel."""

import sys

try:
    import ipykernel # noqa: F401: the kernel
    import nbclient
    import nbformat
except ImportError as error:
    print(f"skipped: {error} (pip install nbclient ipykernel)")
    sys.exit(77)

notebook = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(notebook)
client = nbclient.NotebookClient(notebook, timeout=int(sys.argv[2]), kernel_name="python3")
try:
    client.execute()
except (nbclient.exceptions.CellExecutionError, nbclient.exceptions.CellTimeoutError) as error:
    print(error)
    sys.exit(1)
outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
for output in outputs:
    print(output.get("text", ""), end="")
figures = sum("image/png" in output.get("data", {}) for output in outputs)
print(f"{figures} figures")
sys.exit(0 if figures > 0 else 1)
