//! Tests DWCS against its papers and against an independent implementation. Every failure prints the case that
//! repeats it.

mod bounds;
mod figure15;
mod guarantees;
mod model;
mod naive;
mod sets;
