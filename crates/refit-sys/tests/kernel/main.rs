//! Each wrapper against the kernel: what it says is there is what the kernel does.

mod common;
mod seccomp;
mod userfault;
