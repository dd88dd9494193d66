package node

import "encoding/binary"

// littleEndian says whether this machine stores the least byte first.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1
