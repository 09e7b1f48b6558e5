"""The video server of QualMan's sample program: sends ten frames in a second to one client, over METP.

    python3 server.py INTERFACE ADDRESS TLS HOST     waits at ADDRESS for the client, which is reached through INTERFACE
"""

import sys
import time

import qfabric

FRAME = bytes([0x55]) * 19_200  # 320 x 240 pixels of the brightness 1, four in a byte
PERIOD, DELAY = 0.1, 0.3  # seconds; the longest time from end to end
RATE = 1_843_200  # bits per second: a fifth more than the frames, for headers


def main(interface, address, tls, host):
    with qfabric.ServerConnection(address, tls, host, "film", partially_reliable=True) as server:
        print("listens on", server.address, flush=True)
        client = server.accept(60)
        if client is None:
            raise SystemExit("no client came within 60 s")
        reserved = client.reserve(interface, RATE, PERIOD)
        print(f"{client.peer} is served, {reserved} bit/s are reserved", flush=True)
        try:
            while True:
                send(client)
                time.sleep(PERIOD)
        except qfabric.Error as ended:
            print(ended)


def send(client):
    try:
        client.send(FRAME, kind="I", deadline=DELAY, within=0)
    except TimeoutError:
        pass  # while the queue is full, frames are left out


main(*sys.argv[1:])
