//! Damaged files: an error or an answer, never a panic, and always an end.

use rayon::prelude::*;
use std::path::Path;

use refit_analysis::image::{Image, Procedure};
use refit_analysis::{FunctionId, Module, OpenError};

/// Pseudo-random numbers that are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("below a length")
    }
}

/// Analyses `data` and computes the flow of all functions; returns whether the file was accepted.
fn look_at(data: Vec<u8>) -> bool {
    let Ok(image) = Image::parse(Path::new("damaged"), data) else { return false };
    let is_empty = |one: Procedure| one.addresses.is_empty();
    let procedures: Vec<_> = ParallelIterator::flatten(image.procedures()).collect();
    assert!(!procedures.into_iter().chain(image.go_procedures()).any(is_empty));
    let module = Module::analyse(image);
    for i in 0..module.functions().len() as u32 {
        let flow = module.flow(FunctionId(i));
        for block in flow.blocks() {
            assert!(flow.block_instructions(block).count() > 0);
        }
    }
    true
}

#[test]
fn bytes_that_were_changed_do_no_harm() {
    let original = std::fs::read("/bin/true").expect("a program");
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut analysed = 0;
    for turn in 0..120 {
        let mut data = original.clone();
        // Damages any byte, or one on which much depends: in headers and tables at the front.
        let within = if turn % 2 == 0 { data.len() } else { 0x1000 };
        for _ in 0..=numbers.below(24) {
            let at = numbers.below(within.min(data.len()));
            data[at] = numbers.next() as u8;
        }
        if turn % 8 == 0 {
            let length = numbers.below(data.len());
            data.truncate(length);
        }
        analysed += usize::from(look_at(data));
    }
    assert!(analysed > 20, "{analysed}");
}

#[test]
fn code_that_is_noise_is_analysed() {
    let mut data = std::fs::read("/bin/true").expect("a program");
    let image = Image::parse(Path::new("true"), data.clone()).expect("a program");
    let mut numbers = Numbers(7);
    for segment in image.segments().iter().filter(|s| s.executable) {
        let begin = usize::try_from(segment.offset).expect("an offset");
        let length = segment.addresses.end - segment.addresses.start;
        let length = usize::try_from(length).expect("a length");
        data[begin..begin + length].iter_mut().for_each(|byte| *byte = numbers.next() as u8);
    }
    assert!(look_at(data));
}

#[test]
fn what_is_no_program_for_this_machine_is_refused() {
    let parse = |data: &[u8]| Image::parse(Path::new("a"), data.to_vec()).err();
    assert!(matches!(parse(b""), Some(OpenError::Malformed { .. })));
    assert!(matches!(parse(b"#!/bin/sh\n"), Some(OpenError::Malformed { .. })));
    let good = std::fs::read("/bin/true").expect("a program");
    let with = |at: usize, byte: u8| {
        let mut data = good.clone();
        data[at] = byte;
        parse(&data)
    };
    assert!(matches!(with(4, 1), Some(OpenError::Machine { .. })), "32 bits");
    assert!(matches!(with(5, 2), Some(OpenError::Machine { .. })), "big-endian");
    assert!(matches!(with(18, 183), Some(OpenError::Machine { .. })), "another processor");
    assert!(matches!(with(16, 1), Some(OpenError::Kind { .. })), "an object file");
    assert!(matches!(with(16, 4), Some(OpenError::Kind { .. })), "a core dump");
    let missing = Image::open(Path::new("/nonexistent/program")).err();
    assert!(matches!(missing, Some(OpenError::Read { .. })));
    let folder = Image::open(Path::new("/")).err();
    assert!(matches!(folder, Some(OpenError::Kind { .. })));
}
