//! Every module with tests of its own: `zig test tests.zig`.

test {
    _ = @import("json.zig");
    _ = @import("net.zig");
    _ = @import("sha256.zig");
    _ = @import("guard/calm.zig");
    _ = @import("guard/decide.zig");
    _ = @import("guard/lease.zig");
    _ = @import("guard/meminfo.zig");
    _ = @import("guard/rank.zig");
    _ = @import("guard/stream.zig");
    _ = @import("guard/watch.zig");
}
