#!/usr/bin/env python3
"""check_schema.py SCHEMA.json FILE: FILE, JSON or YAML, has the form of the schema. Exit status 77: a module is missing."""

import json
import sys

try:
    import jsonschema
    import yaml
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

with open(sys.argv[1], encoding="utf-8") as schema, open(sys.argv[2], encoding="utf-8") as file:
    # YAML 1.1 would read the key `on` as true; GitHub's Actions read it as a word.
    loader = type("Loader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": {
        key: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:bool"]
        for key, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()}})
    form, content = json.load(schema), json.load(file) if sys.argv[2].endswith(".json") else yaml.load(file, loader)
jsonschema.Draft7Validator.check_schema(form)
errors = [f"{'/'.join(map(str, error.absolute_path))}: {error.message}" for error in jsonschema.Draft7Validator(form).iter_errors(content)]
# Not expressible in a schema: every grader's result is passed to the reporter.
for job in content.get("jobs", {}).values():
    graders = [step["id"] for step in job.get("steps", []) if "command-grader" in step.get("uses", "")]
    report = job["steps"][-1]
    wanted = {f"{name.upper()}_RESULTS": "${{steps." + name + ".outputs.result}}" for name in graders}
    if report.get("env") != wanted or report.get("with", {}).get("runners") != ",".join(graders):
        errors.append(f"the last step does not report {graders}")
print("\n".join(errors))
sys.exit(1 if errors else 0)
