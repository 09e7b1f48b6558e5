"""QualMan's sample program (its section 6.4): the client of a video server reserves memory, network and CPU.

    python3 sample.py INTERFACE PORT FRAMES        receives frames at PORT over UDP
"""

import socket
import sys

import qfabric

FRAME_BYTES = 19_200  # 320 x 240 pixels, four in a byte
FRAMES_PER_SECOND = 10
PIXELS = [bytes((byte >> 6, byte >> 4 & 3, byte >> 2 & 3, byte & 3)) for byte in range(256)]


def main(interface, port, frames):
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("", int(port)))
    server.settimeout(10)
    rate = 8 * 1.2 * FRAME_BYTES * FRAMES_PER_SECOND  # a fifth more for headers
    period_ms = 1000 / FRAMES_PER_SECOND

    with qfabric.Mem() as mem:
        reserve = mem.reserve(64 << 20)  # bytes: the text with its libraries, and the buffers
        mem.lock_text(reserve)
        display_buffer = mem.alloc(reserve, 76_800)
        decoder_buffer = mem.alloc(reserve, FRAME_BYTES)

        def play():
            decoder_buffer.write(server.recv(FRAME_BYTES))
            packed = decoder_buffer.read(FRAME_BYTES)
            display_buffer.write(b"".join(map(PIXELS.__getitem__, packed)))  # decode
            return sum(display_buffer.read(76_800))  # display: the sum of all pixels stands for a screen

        with qfabric.JointContract.apply({None: {f"network {interface} in": rate}}) as connection:
            cpu = qfabric.Cpu()
            cpu.probe_on(period_ms)
            for _ in range(5):
                play()
                cpu.yield_now()  # marks the end of one iteration
            utilisation = cpu.probe_off().utilisation + 0.02  # longer iterations may follow

            cpu.reserve(utilisation, period_ms)
            cpu.start()
            for _ in range(int(frames)):
                brightness = play()
                cpu.yield_now()
            print(f"{frames} frames, brightness {brightness}, {utilisation:.3f} CPU, contract {connection.id}")
            cpu.free()
        mem.free_reserve(reserve)


main(*sys.argv[1:])
