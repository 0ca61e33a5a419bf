//! Context keys, as build/demo/keys.py makes them: integers of 64 bits, the same on every machine.

const std = @import("std");

pub const base: u64 = 0x100000001B3;
const salt_factor: u64 = 0xD6E8FEB86659FD93;

/// splitmix64's finaliser.
pub fn mix(input: u64) u64 {
    var value = input +% 0x9E3779B97F4A7C15;
    value = (value ^ (value >> 30)) *% 0xBF58476D1CE4E5B9;
    value = (value ^ (value >> 27)) *% 0x94D049BB133111EB;
    return value ^ (value >> 31);
}

pub fn push(polynomial: u64, token: u16) u64 {
    return polynomial *% base +% token +% 1;
}

pub fn key(salt: u64, polynomial: u64) u64 {
    return mix(polynomial ^ (salt *% salt_factor));
}

pub fn topicKey(salt: u64, polynomial: u64, topic: u64) u64 {
    return mix(key(salt, polynomial) ^ topic);
}

pub fn fnv1a(bytes: []const u8) u64 {
    var value: u64 = 0xCBF29CE484222325;
    for (bytes) |byte| value = (value ^ byte) *% base;
    return value;
}
