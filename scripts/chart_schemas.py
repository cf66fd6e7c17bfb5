#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes strict JSON schemas for kubeconform, without a network, from Kubernetes' own OpenAPI file or from definitions of custom
resources.

usage: chart_schemas.py api SWAGGER.json FOLDER        one file KIND-GROUP-VERSION.json for each kind
       chart_schemas.py crds FOLDER CRD.yaml...
"""
import json
import pathlib
import sys

import yaml

PREFIX = "#/definitions/"
ANYTHING = {"x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"}


def strict(node, definitions, open_names=()):
    """Returns the schema without references. Objects with known fields accept no others."""
    if isinstance(node, list):
        return [strict(item, definitions, open_names) for item in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("$ref"), str):  # JSONSchemaProps has a field of that name, too.
        name = node["$ref"].removeprefix(PREFIX)
        if name in open_names:  # JSONSchemaProps contains itself.
            return {}
        return strict(definitions[name], definitions, (*open_names, name))
    # Numbers or texts: quantities ("500m"), ports ("http").
    if node.get("format") == "int-or-string" or node.get("x-kubernetes-int-or-string"):
        return {"type": ["string", "integer"]}
    made = {key: strict(value, definitions, open_names) for key, value in node.items()}
    if isinstance(node.get("properties"), dict) and "additionalProperties" not in node and not ANYTHING & node.keys():
        made["additionalProperties"] = False
    return made


def write(folder, kind, group, version, schema):
    name = "-".join(part.lower() for part in (kind, group.split(".")[0], version) if part)
    (folder / f"{name}.json").write_text(json.dumps(schema))


def from_api(swagger, folder):
    definitions = json.loads(pathlib.Path(swagger).read_text())["definitions"]
    quantity = definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"]
    quantity.clear()
    quantity["type"] = ["string", "number"]
    for definition in definitions.values():
        kinds = definition.get("x-kubernetes-group-version-kind", [])
        if len(kinds) != 1 or "metadata" not in definition.get("properties", {}):
            continue
        schema = strict(definition, definitions)
        schema["required"] = sorted({*schema.get("required", []), "apiVersion", "kind", "metadata"})
        write(folder, kinds[0]["kind"], kinds[0]["group"], kinds[0]["version"], schema)


def from_crds(folder, paths):
    for path in paths:
        for crd in yaml.safe_load_all(pathlib.Path(path).read_text()):
            if not crd or crd.get("kind") != "CustomResourceDefinition" or crd["spec"]["names"]["kind"] == "":
                continue
            spec = crd["spec"]
            for version in spec["versions"]:
                schema = strict(version["schema"]["openAPIV3Schema"], {})
                schema["properties"]["metadata"] = {"type": "object"}
                write(folder, spec["names"]["kind"], spec["group"], version["name"], schema)


def main():
    if sys.argv[1] == "api":
        folder = pathlib.Path(sys.argv[3])
        folder.mkdir(parents=True, exist_ok=True)
        from_api(sys.argv[2], folder)
    else:
        folder = pathlib.Path(sys.argv[2])
        folder.mkdir(parents=True, exist_ok=True)
        from_crds(folder, sys.argv[3:])


if __name__ == "__main__":
    main()
