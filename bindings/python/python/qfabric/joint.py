"""Joint contracts: resources of several hosts that are promised together or not at all."""

import json as _json

from . import _qfabric


def _amounts(hosts):
    """The native half's list of amounts."""
    for host, resources in hosts.items():
        for resource, amount in resources.items():
            wanted, minimum = amount if isinstance(amount, tuple) else (amount, amount)
            yield host or "", resource, float(wanted), float(minimum)


def identity(contract):
    """HOST:NUMBER of a contract, which may be given as such; None of None."""
    return contract.id if isinstance(contract, JointContract) else contract


class JointContract:
    """A joint contract in force. Ended by ``end`` or at the end of a ``with`` block; otherwise it survives the program.

    ::

        amounts = {
            None: {"cpu": (0.3, 0.2), "network eth0 out": 5e6},  # this host: 0.3 CPU are wanted, 0.2 are enough
            "bob": {"memory": 32 << 20},
        }
        with qfabric.JointContract.apply(amounts) as contract:
            print(contract.id, contract.resources)

    Amounts are CPUs, bytes, or bits per second. Programs draw from it with ``contract=``: ``Cpu.reserve``,
    ``Mem.reserve`` and ``Stream`` take the contract or its ``id``.
    """

    def __init__(self, native):
        self._native = native

    @classmethod
    def apply(cls, hosts, patience=0.0, socket=None):
        """Makes a contract: all amounts on all hosts, or nothing.

        Tries again for ``patience`` seconds, at most 60, if a refusal may pass when other contracts end. ``Refused`` has
        refused_by, resource, asked, free and largest.
        """
        return cls(_qfabric.NativeJoint.apply(list(_amounts(hosts)), patience, socket))

    @classmethod
    def open(cls, id, socket=None):
        """A contract that is in force already, by its identity HOST:NUMBER."""
        return cls(_qfabric.NativeJoint.open(id, socket))

    @property
    def id(self):
        """The identity, with which other programs find the contract and draw from it."""
        return _json.loads(self._native.json())["id"]

    @property
    def resources(self):
        """The amounts as last read: a list of dicts with host, resource, asked and granted."""
        return _json.loads(self._native.json())["resources"]

    @property
    def is_partial(self):
        """Whether less is granted than was asked for."""
        return _json.loads(self._native.json())["partial"]

    def refresh(self):
        """Reads the contract again: a partly satisfied one is raised as soon as more is free."""
        self._native.refresh()

    def end(self):
        """Ends the contract on all hosts; a second call does nothing."""
        self._native.end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def contracts(socket=None):
    """The joint contracts in force that users of this host asked for: a list of dicts with id and resources."""
    return _json.loads(_qfabric.joint_contracts_json(socket))
