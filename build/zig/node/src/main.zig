//! twinfold-node: all that a node needs of this project in one static binary. Each command is a room of its own.

const std = @import("std");
const linux = std.os.linux;
const out = @import("out.zig");
const release = @import("release.zig");
const sys = @import("sys.zig");
const Arguments = @import("arguments.zig").Arguments;

const usage =
    \\usage: twinfold-node COMMAND ...
    \\
    \\  hash     sha256 of files or trees, leaving the page cache as it was
    \\  drop     give the page cache of files back
    \\  probe    does a path carry packets of full size
    \\  guard    watch over one rank: kill it at the memory floor, stop it when its peer is gone
    \\  version  version and protocol number
    \\
    \\twinfold-node COMMAND --help says more. Results are JSON lines on standard output; an error is one line on standard error.
    \\Exit: 0 done; 1 failed; 2 wrong usage.
    \\
;

const Command = struct {
    name: []const u8,
    help: []const u8,
    run: *const fn (*Arguments, std.mem.Allocator) anyerror!u8,
};

const commands = [_]Command{
    .{ .name = "hash", .help = @import("hash.zig").help, .run = @import("hash.zig").run },
    .{ .name = "drop", .help = @import("drop.zig").help, .run = @import("drop.zig").run },
    .{ .name = "probe", .help = @import("probe.zig").help, .run = @import("probe.zig").run },
    .{ .name = "guard", .help = @import("guard.zig").help, .run = @import("guard.zig").run },
    .{ .name = "version", .help = "usage: twinfold-node version\n", .run = printVersion },
};

/// A bug ends the process at once with its one line; nothing is unwound and no symbols are carried.
pub const panic = std.debug.FullPanic(struct {
    fn die(text: []const u8, _: ?usize) noreturn {
        out.complain("a bug in twinfold-node: {s}", .{text});
        linux.exit_group(134);
    }
}.die);

pub fn main(init: std.process.Init.Minimal) u8 {
    const argv = init.args.vector;
    if (argv.len < 2) {
        out.complain("a command is needed; see twinfold-node --help", .{});
        return 2;
    }
    const name = std.mem.span(argv[1]);
    if (isHelp(name)) {
        out.say(usage);
        return 0;
    }
    for (commands) |command| {
        if (std.mem.eql(u8, command.name, name)) return runCommand(command, argv[2..]);
    }
    out.complain("unknown command {s}; see twinfold-node --help", .{name});
    return 2;
}

fn runCommand(command: Command, rest: []const [*:0]const u8) u8 {
    if (rest.len > 0 and isHelp(std.mem.span(rest[0]))) {
        out.say(command.help);
        return 0;
    }
    var arena: std.heap.ArenaAllocator = .init(std.heap.page_allocator);
    var arguments: Arguments = .{ .command = command.name, .rest = rest };
    return command.run(&arguments, arena.allocator()) catch |err| switch (err) {
        error.Usage => 2,
        error.SystemCall => failed(command.name, sys.message(sys.last)),
        else => failed(command.name, @errorName(err)),
    };
}

fn failed(command: []const u8, reason: []const u8) u8 {
    out.complain("{s}: {s}", .{ command, reason });
    return 1;
}

fn isHelp(argument: []const u8) bool {
    return std.mem.eql(u8, argument, "--help") or std.mem.eql(u8, argument, "-h");
}

fn printVersion(arguments: *Arguments, _: std.mem.Allocator) anyerror!u8 {
    if (arguments.next()) |extra| return arguments.wrong("unexpected argument {s}", .{extra});
    out.say(std.fmt.comptimePrint("{{\"version\":\"{s}\",\"protocol\":{d}}}\n", .{ release.version, release.protocol }));
    return 0;
}
