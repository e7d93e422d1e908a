//! Each wrapper against the kernel: what it says is there is what the kernel does.

mod agent;
mod common;
mod keeper;
mod process;
mod restart;
mod seccomp;
mod sequences;
mod trace;
mod userfault;
