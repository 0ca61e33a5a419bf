//! A chat in any of the APIs' forms on its way to a prompt: tools first, then what the route adds, then the reply's opening.

const std = @import("std");
const params = @import("params.zig");
const prompts = @import("prompt.zig");
const tools = @import("tools.zig");
const Ask = @import("request.zig").Ask;
const Call = @import("call.zig").Call;
const Failure = @import("call.zig").Failure;

pub const Conversation = struct {
    call: *Call,
    object: std.json.ObjectMap,
    ask: Ask,
    offer: []const tools.Tool,
    prompt: prompts.Prompt,

    /// Read everything but the conversation itself. `limits` names the fields that bound the reply.
    pub fn begin(call: *Call, object: std.json.ObjectMap, limits: []const []const u8) Failure!Conversation {
        var self = Conversation{
            .call = call,
            .object = object,
            .ask = try params.read(call, object, limits),
            .offer = try tools.offered(call, object),
            .prompt = try .init(call.memory),
        };
        try tools.describe(call, &self.prompt, self.offer);
        return self;
    }

    /// Add the field `messages`, which has to be there.
    pub fn addMessages(self: *Conversation) Failure!void {
        const messages = self.object.get("messages") orelse return self.call.bad("messages is missing", .{});
        try prompts.addMessages(self.call, &self.prompt, messages);
    }

    /// Open the reply; all that is asked for.
    pub fn end(self: *Conversation) Failure!Ask {
        if (try tools.chosen(self.call, self.object, self.offer, &self.prompt)) |tool| {
            self.ask.forced = try tools.forced(self.call, tool, self.prompt.question, self.ask.thinking);
        }
        self.ask.assistant_at = try self.prompt.open(self.ask.thinking);
        self.ask.prompt = self.prompt.tokens.items;
        self.ask.topic = self.prompt.topic();
        self.ask.image_seed = self.prompt.image_seed;
        return self.ask;
    }
};
