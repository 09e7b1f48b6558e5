//! Wrong stream files: line, column, value, and what to write instead.

use qfabric_translate::{MAX_BYTES, Stream};

fn refused(text: &str) -> String {
    let error = Stream::parse(text).expect_err(text);
    error.problem().to_string()
}

/// Each line of a good file, replaced by a wrong one; the message must contain all parts.
#[track_caller]
fn check(good: &str, wrong: &str, parts: &[&str]) {
    const GOOD: &str = "delay = \"200ms\"\n[video]\nframe_rate = 25\nframe_size = \"20kB\"\npattern = \"IBBP\"\n\
                        [local]\ninterface = \"eth0\"\ncomputation = \"5ms\"\n[peer]\nhost = \"bob\"\ninterface = \"eth1\"\n";
    assert!(Stream::parse(GOOD).is_ok() && GOOD.contains(good));
    let message = refused(&GOOD.replacen(good, wrong, 1));
    assert!(parts.iter().all(|part| message.contains(part)), "{message}");
}

#[test]
fn a_misspelt_key_is_refused_with_the_nearest_key() {
    check("frame_rate", "frame_raet", &["line 3, column 1", "frame_raet", "[video]", "write frame_rate"]);
    check("delay", "dealy", &["line 1, column 1", "write delay"]);
    check("host =", "color = 3\nhost =", &["line 10", "use one of host, interface"]);
    check("25", "{ min = 3, most = 25 }", &["line 3, column 25", "most", "[frame_rate]"]);
    check("computation = \"5ms\"", "profile = { vdeo = \"x\" }", &["line 8", "vdeo", "[profile]", "write video"]);
}

#[test]
fn values_without_a_meaning_are_refused_with_the_accepted_form() {
    check("25", "\"fast\"", &["line 3, column 14", "\"fast\"", "a number from 0.25 to 10000"]);
    check("\"20kB\"", "\"20 parsecs\"", &["line 4, column 14", "20 parsecs", "\"20kB\""]);
    check("\"20kB\"", "20", &["line 4", "a size with its unit in quotes"]);
    check("\"200ms\"", "200", &["line 1, column 9", "a time with its unit in quotes"]);
    check("\"IBBP\"", "\"BBP\"", &["line 5", "beginning with I"]);
    check("\"eth0\"", "\"a/b\"", &["line 7", "network interface"]);
    check("\"bob\"", "\"-\"", &["line 10", "a name of up to 64"]);
    check("delay", "direction = \"up\"\ndelay", &["line 1, column 13", "\"out\" or \"in\""]);
    check("delay", "duplex = 1\ndelay", &["true or false"]);
    check("25", "{ min = 30, max = 25 }", &["smaller than min", "exchange"]);
}

#[test]
fn extremes_are_refused_with_the_limit() {
    for rate in ["0", "-1", "nan", "inf", "-inf", "1e300", "10001", "0x7fffffffffffffff"] {
        check("25", rate, &["line 3, column 14", rate, "choose a value within 0.25 to 10000"]);
    }
    check("\"20kB\"", "\"0B\"", &["\"0B\"", "1 B to 64 MiB"]);
    check("\"20kB\"", "\"-1kB\"", &["-1kB"]);
    check("\"20kB\"", "\"1GiB\"", &["1GiB", "1 B to 64 MiB"]);
    check("\"200ms\"", "\"0ms\"", &["\"0ms\"", "1ns to 60s"]);
    check("\"200ms\"", "\"2000s\"", &["2000s", "60s"]);
    check("\"IBBP\"", "\"IBBP\"\ndegradation = 1.5", &["1.5", "0 to 0.95"]);
    assert!(refused(&" ".repeat(MAX_BYTES + 1)).contains("65536 bytes"));
}

#[test]
fn missing_keys_and_keys_without_their_part_are_refused() {
    check("frame_rate = 25\n", "", &["line 2", "[video] lacks frame_rate", "frame_rate = 25"]);
    check("frame_size = \"20kB\"", "frame_size = { I = \"1kB\" }", &["lacks P"]);
    check("[local]\ninterface = \"eth0\"", "[local]", &["lacks interface"]);
    check("delay", "skew = \"5ms\"\ndelay", &["one medium", "[sound]"]);
    check("computation = \"5ms\"", "computation = \"5ms\"\nprofile = \"x\"", &["keep one"]);
    check("computation = \"5ms\"", "computation = { sound = \"5ms\" }", &["lacks this medium"]);
    check("\"bob\"", "\"local\"", &["the host that asks"]);
    assert!(refused("").contains("lacks video"));
    let local = "timeout = \"1s\"\n[video]\nframe_rate = 25\nframe_size = \"1kB\"";
    assert!(refused(local).contains("no peer"));
}

#[test]
fn a_text_that_is_no_toml_is_refused_at_its_place() {
    check("\"20kB\"", "20kB", &["line 4", "not TOML"]);
    check("[video]", "[video", &["line 2", "not TOML"]);
    check("frame_rate = 25", "frame_rate = 25\nframe_rate = 26", &["line 4", "not TOML"]);
    let deep = "a = ".to_owned() + &"[".repeat(30_000);
    assert!(refused(&deep).contains("line 1"));
}
