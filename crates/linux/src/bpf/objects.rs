//! The objects that clang has made of `bpf/**/*.bpf.c`, each under its path's name.

include!(concat!(env!("OUT_DIR"), "/objects.rs"));
