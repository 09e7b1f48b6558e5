//! The objects that clang compiled from `bpf/**/*.bpf.c`, each named after its path.

include!(concat!(env!("OUT_DIR"), "/objects.rs"));
