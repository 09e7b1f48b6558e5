//! Audio through PipeWire under a reservation: a server, a player and a recorder, without a session manager, D-Bus or
//! hardware. The speaker is a timer, and the script links the ports by name.

use std::fs::{self, File};

use crate::compatibility::is_here;
use crate::harness::{Answer, qfabric};
use crate::live::{Daemon, live};

/// The line of a configuration with which PipeWire's data threads put themselves under SCHED_FIFO.
const MODULE_RT: &str = "{ name = libpipewire-module-rt }\n";

const SERVER: &str = "\
context.properties = { core.daemon = true core.name = pipewire-0 support.dbus = false }
context.spa-libs = { audio.convert.* = audioconvert/libspa-audioconvert support.* = support/libspa-support }
context.modules = [
    { name = libpipewire-module-rt }
    { name = libpipewire-module-protocol-native }
    { name = libpipewire-module-spa-node-factory }
    { name = libpipewire-module-client-node }
    { name = libpipewire-module-access }
    { name = libpipewire-module-adapter }
    { name = libpipewire-module-link-factory }
]
context.objects = [ { factory = adapter args = {
    factory.name = support.null-audio-sink node.name = speaker media.class = Audio/Sink audio.position = [ MONO ]
    adapter.auto-port-config = { mode = dsp monitor = true position = preserve }
} } ]
";

const CLIENT: &str = "\
context.properties = { support.dbus = false }
context.spa-libs = { audio.convert.* = audioconvert/libspa-audioconvert support.* = support/libspa-support }
context.modules = [
    { name = libpipewire-module-rt }
    { name = libpipewire-module-protocol-native }
    { name = libpipewire-module-client-node }
    { name = libpipewire-module-adapter }
]
";

/// `$1` is `own` or `reserved`: the state of the threads of server and recorder in which the tone begins. Ends with the
/// exit code of the player, after all three have ended.
const SCRIPT: &str = r#"set -e
export PIPEWIRE_RUNTIME_DIR=$PWD
ports='{ adapter.auto-port-config = { mode = dsp position = preserve } }'
trap 'kill $server $recorder $player 2>/dev/null || :; wait' EXIT
again() { tries=0; until "$@" 2>/dev/null; do [ $((tries += 1)) -lt 1000 ]; sleep 0.05; done; }
# Field 41 of each thread's stat, counted from the bracket behind the name: 1 is SCHED_FIFO, 6 is SCHED_DEADLINE.
policies() {
    for stat in /proc/$1/task/*/stat; do
        read -r line < $stat
        set -- ${line##*) }
        shift 38
        printf $1
    done
}
own() { case $(policies $1) in *1*) ;; *) return 1 ;; esac; }
reserved() { case $(policies $1) in '' | *[!6]*) return 1 ;; esac; }
pipewire -c $PWD/server.conf & server=$!
again test -e pipewire-0
# Not earlier: the variable also replaces the configuration of the server.
export PIPEWIRE_CONFIG_NAME=$PWD/client.conf
pw-record --target 0 -P "$ports" --rate 48000 --channels 1 --format s16 heard.wav & recorder=$!
again pw-link speaker:monitor_MONO pw-record:input_MONO
again $1 $server
again $1 $recorder
pw-play --target 0 -P "$ports" tone.wav & player=$!
again pw-link pw-play:output_MONO speaker:playback_MONO
wait $player
kill -INT $recorder
wait $recorder || :
"#;

const RATE: u32 = 48_000;
/// Samples of the tone: two seconds.
const TONE: usize = 96_000;

/// A file of one channel of 16 bits. No sample of the tone, a square wave of 480 Hz, is zero.
fn tone() -> Vec<u8> {
    let bytes = 2 * TONE as u32;
    let mut file = [&b"RIFF"[..], &(36 + bytes).to_le_bytes(), b"WAVEfmt ", &16_u32.to_le_bytes()].concat();
    file.extend([1_u16, 1].map(u16::to_le_bytes).concat());
    file.extend([RATE, 2 * RATE].map(u32::to_le_bytes).concat());
    file.extend([2_u16, 16].map(u16::to_le_bytes).concat());
    file.extend([&b"data"[..], &bytes.to_le_bytes()].concat());
    file.extend((0..TONE).flat_map(|at| [9_000_i16, -9_000][at / 50 % 2].to_le_bytes()));
    file
}

/// Samples of the tone in a recording, and the number of parts with silence between them.
fn heard(recording: &[u8]) -> (usize, usize) {
    let data = recording.windows(4).position(|name| name == b"data").expect("pw-record writes WAV");
    let samples: Vec<bool> = recording[data + 8..].chunks_exact(2).map(|sample| sample != [0, 0]).collect();
    let begins = samples.windows(2).filter(|two| !two[0] && two[1]).count();
    (samples.iter().filter(|is_tone| **is_tone).count(), begins + usize::from(samples.first() == Some(&true)))
}

/// Plays the tone under `qfabric run`, and checks what the recorder heard of it. Returns the daemon's log. None if a
/// program is not installed, or no reservation is possible here.
fn play(threads: &str) -> Option<String> {
    if !["pipewire", "pw-play", "pw-record", "pw-link"].into_iter().all(is_here) {
        return None;
    }
    let _lock = live()?;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let configured = |text: &str| if threads == "own" { text.to_owned() } else { text.replace(MODULE_RT, "\n") };
    for (name, text) in [("server.conf", configured(SERVER)), ("client.conf", configured(CLIENT))] {
        fs::write(file(name), text).unwrap();
    }
    fs::write(file("script"), SCRIPT).unwrap();
    fs::write(file("tone.wav"), tone()).unwrap();
    let daemon = Daemon::start_logging(folder.path(), "", File::create(file("log")).unwrap().into());
    let mut run = qfabric(folder.path());
    // The limit is for a thread that never runs again. It ends the script with all programs that it started.
    let limit = ["timeout", "-s", "KILL", "300"];
    run.args(["run", "--period", "21ms", "--"]).args(limit).args(["sh", "script", threads]).current_dir(folder.path());
    Answer::of(&mut run).expect(0, &["reserved on average"]);
    drop(daemon);
    // `module-rt` changes the policy of a reserved thread that sleeps, and the kernel then keeps its 0.001 CPU booked.
    qfabric(folder.path()).args(["doctor", "--fix"]).output().unwrap();
    let (samples, parts) = heard(&fs::read(file("heard.wav")).unwrap());
    println!("{threads} threads: heard {samples} of {TONE} samples in {parts} part(s)");
    // The player ends before its last buffers are heard. A buffer that is late on a loaded machine is lost.
    assert!(samples >= TONE / 2, "{samples} of {TONE} samples were heard");
    Some(fs::read_to_string(file("log")).unwrap())
}

#[test]
fn audio_plays_while_pipewire_puts_its_data_threads_under_sched_fifo_itself() {
    let Some(log) = play("own") else { return };
    assert!(log.contains("runs under SCHED_FIFO, which its program chose itself, and is left alone"), "{log}");
}

#[test]
fn audio_plays_while_all_threads_of_pipewire_are_reserved() {
    let Some(log) = play("reserved") else { return };
    assert!(!log.contains("SCHED_FIFO"), "{log}");
}
