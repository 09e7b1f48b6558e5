"""Joint contracts: resources of several hosts that are promised together or not at all."""

import json as _json
import time as _time

from . import _qfabric

# Longest wait of one call, so that Python handles signals in between, in seconds.
_STEP = 0.5


def _waited(ask, timeout):
    """Asks until something came, or for ``timeout`` seconds."""
    until = _time.monotonic() + timeout
    while True:
        left = max(until - _time.monotonic(), 0.0)
        came = ask(min(left, _STEP))
        if came is not None or left <= _STEP:
            return came and _json.loads(came)


def _amounts(hosts):
    """The native half's list of amounts."""
    for host, resources in hosts.items():
        for resource, amount in resources.items():
            wanted, minimum = amount if isinstance(amount, tuple) else (amount, amount)
            yield host or "", resource, float(wanted), float(minimum)


def _process(lease):
    """The native half's number of a lease."""
    if lease is None or isinstance(lease, bool):
        return -1 if lease else 0
    if lease <= 0:
        raise ValueError(f"the lease {lease} is not a process; use True, or a process id above 0")
    return lease


def identity(contract):
    """HOST:NUMBER of a contract, which may be given as such; None of None."""
    return contract.id if isinstance(contract, JointContract) else contract


class JointContract:
    """A joint contract in force. Ended by ``end`` or at the end of a ``with`` block; otherwise it survives the program,
    except with ``lease``.

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
    def apply(
        cls, hosts=None, patience=0.0, socket=None, *, applications=None, lease=None, upgrades="accept", stream=None
    ):
        """Makes a contract: all amounts on all hosts, or nothing.

        ``stream`` is the text of a stream file: the contract has its amounts on all its hosts, and those of its worst
        accepted quality are enough. Amounts of ``hosts`` replace those of the same resources.

        Tries again for ``patience`` seconds, at most 60, if a refusal may pass when other contracts end. ``Refused`` has
        refused_by, resource, asked, free, largest, holders and others.

        ``applications`` names the application that must consent, by host. ``lease=True`` ends the contract with this
        object and the calling process, ``lease=PID`` with another process of the user. ``upgrades`` sets who decides
        when more becomes free for a partly satisfied contract: ``"accept"`` at once, ``"ask"`` for ``next_offer``,
        ``"never"``.
        """
        named = [(host or "", application) for host, application in (applications or {}).items()]
        amounts, process = list(_amounts(hosts or {})), _process(lease)
        return cls(_qfabric.NativeJoint.apply(stream, amounts, named, patience, process, upgrades, socket))

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

    def next_offer(self, timeout=30.0):
        """Waits for a host to offer more, with ``upgrades="ask"``: a dict with host, resources and left_ns, the time that
        is left for an answer. None if no host did within ``timeout`` seconds."""
        return _waited(self._native.next_offer_json, timeout)

    def answer_offer(self, offer, accept):
        """Accepts or declines an offer. ``Refused`` if its time is over."""
        self._native.answer_offer(offer["host"], accept)

    def end(self):
        """Ends the contract on all hosts; a second call does nothing."""
        self._native.end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def explain(stream):
    """The steps from a stream to its amounts, each with its formula: a dict with steps and resources, as
    ``qfabric contract explain --json`` prints it. ``stream`` is the text of a stream file. Needs no daemon."""
    return _json.loads(_qfabric.explain_json(stream))


def contracts(socket=None):
    """The joint contracts in force that users of this host asked for: a list of dicts with id and resources."""
    return _json.loads(_qfabric.joint_contracts_json(socket))


class Consent:
    """The calling process answers for an application of this host whose consent joint contracts need. Ended by ``end``, at
    the end of a ``with`` block, or with the process.

    ::

        with qfabric.Consent("player") as answers:
            while True:
                answers.answer_next(lambda question: question["resources"]["cpu"] <= 0.5)
    """

    def __init__(self, application, socket=None):
        self._native = _qfabric.NativeConsent(application, socket)

    def next(self, timeout=30.0):
        """The next question: a dict with number, application, contract, resources and left_ns, the time that is left for
        an answer. None if there was none within ``timeout`` seconds."""
        return _waited(self._native.next_json, timeout)

    def answer(self, question, accept):
        """Answers a question. ``Refused`` if its time is over: then the contract was refused."""
        self._native.answer(question["number"], accept)

    def answer_next(self, decide, timeout=30.0):
        """Waits for the next question and answers it as ``decide(question)`` says. Returns whether there was one; one that
        was answered too late counts, too."""
        question = self.next(timeout)
        if question is None:
            return False
        try:
            self.answer(question, bool(decide(question)))
        except _qfabric.Refused as error:
            if error.code != "no_such_question":
                raise
        return True

    def end(self):
        """Answers no more; a second call does nothing."""
        self._native.end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def consent(application, accept, process=None, socket=None):
    """Accepts or declines every joint contract that needs the consent of an application of this host, until
    ``forget_consent``, or until a process ends if its id is given."""
    _qfabric.set_consent(application, accept, process, socket)


def forget_consent(application, socket=None):
    """Lets nobody answer for an application any more."""
    _qfabric.end_consent(application, socket)


def consents(socket=None):
    """The applications for which the user answers: a list of dicts with application, uid, policy, pid and open."""
    return _json.loads(_qfabric.consents_json(socket))
