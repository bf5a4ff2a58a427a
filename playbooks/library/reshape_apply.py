"""Ansible module: brings the objects of one attempt, which are in a folder, into a cluster.

Does: what the launcher does without Ansible, by the same code and with the same bytes. Never: gets
an object, a token or a user's text as an argument. State: none.
"""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: reshape_apply
short_description: Bring the objects of an attempt into a Kubernetes cluster
options:
  folder:
    description: Folder with objects.json and target.json, as the launcher writes them.
    type: path
    required: true
"""


def main() -> None:
    """Apply, and say the API's own words if that fails."""
    module = AnsibleModule({"folder": {"type": "path", "required": True}})
    try:
        from reshape_launcher.kubernetes.apply import apply_from
    except ImportError as error:
        module.fail_json(msg=f"{error}; ansible_python_interpreter has to be Reshape's own Python")
    try:
        apply_from(Path(module.params["folder"]))
    except OSError as error:
        said = {name: getattr(error, name, False) for name in ("lasting", "away")}
        module.fail_json(msg=str(error), **said)
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
