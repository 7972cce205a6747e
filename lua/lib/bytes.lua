-- exports: pack, unpack_bytes, sub, find, floor, band, bor, bxor
-- Short names for what Redis's Lua offers for bytes and bits. As locals they are also faster inside loops.

local pack, unpack_bytes = struct.pack, struct.unpack
local sub, find, floor = string.sub, string.find, math.floor
local band, bor, bxor = bit.band, bit.bor, bit.bxor
