"""QualMan's sample program (its section 6.4): the client of a video server reserves memory, network and CPU.

    python3 sample.py INTERFACE SERVER TLS HOST FRAMES     receives frames over METP from SERVER, through INTERFACE
"""

import sys

import qfabric

FRAME_BYTES = 19_200  # 320 x 240 pixels, four in a byte
FRAMES_PER_SECOND = 10
MEMORY = 64 << 20  # bytes: the text with its libraries, and the buffers
PIXELS = [bytes((byte >> 6, byte >> 4 & 3, byte >> 2 & 3, byte & 3)) for byte in range(256)]


class Buffer(bytearray):
    """Ordinary memory, for the probe."""

    def write(self, data):
        self[:] = data

    def read(self, length):
        return bytes(self[:length])


def receive(server):
    """The next frame that arrived completely."""
    while True:
        frame = server.receive(10)
        if frame is None or len(frame.data) != FRAME_BYTES:
            raise SystemExit(f"no frame of {FRAME_BYTES} bytes arrived within 10 s")
        if not frame.holes:
            return frame.data


def main(interface, address, tls, host, frames):
    server = qfabric.ClientConnection(address, tls, host, "film", partially_reliable=True)
    rate = 8 * 1.2 * FRAME_BYTES * FRAMES_PER_SECOND  # a fifth more for headers
    period_ms = 1000 / FRAMES_PER_SECOND

    def play(decoder_buffer, display_buffer):
        decoder_buffer.write(receive(server))
        packed = decoder_buffer.read(FRAME_BYTES)
        display_buffer.write(b"".join(map(PIXELS.__getitem__, packed)))  # decode
        return sum(display_buffer.read(76_800))  # display: the sum of all pixels stands for a screen

    cpu = qfabric.Cpu()
    cpu.probe_on(period_ms)
    for _ in range(5):
        play(Buffer(FRAME_BYTES), Buffer(76_800))
        cpu.yield_now()  # marks the end of one iteration
    utilisation = cpu.probe_off().utilisation + 0.02  # longer iterations may follow

    amounts = {"cpu": utilisation, "memory": MEMORY, f"network {interface} in": rate}
    with qfabric.JointContract.apply({None: amounts}) as contract, qfabric.Mem() as mem:  # all three, or none
        reserve = mem.reserve(MEMORY, contract=contract)
        mem.lock_text(reserve)
        display_buffer = mem.alloc(reserve, 76_800)
        decoder_buffer = mem.alloc(reserve, FRAME_BYTES)
        cpu.reserve(utilisation, period_ms, contract=contract)
        cpu.start()
        for _ in range(int(frames)):
            brightness = play(decoder_buffer, display_buffer)
            cpu.yield_now()
        print(f"{frames} frames, brightness {brightness}, {utilisation:.3f} CPU, contract {contract.id}")
        cpu.free()
        mem.free_reserve(reserve)
    server.close()


main(*sys.argv[1:])
