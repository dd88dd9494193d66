package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// itemError is an error in one item of a list, which begins at offset.
type itemError struct {
	offset int
	err    error
}

func (e *itemError) Error() string { return e.err.Error() }
func (e *itemError) Unwrap() error { return e.err }

// placed says in which line and column of a file JSON was wrong. Where the
// decoder knows no place, that is where the item begins.
func placed(name string, data []byte, err error) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return fmt.Errorf("%s: the file is empty", name)
	}
	offset := 0
	var item *itemError
	if errors.As(err, &item) {
		offset = item.offset
	}
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		offset += int(syntax.Offset) - 1
	case errors.As(err, &typ):
		offset += int(typ.Offset) - 1
	}
	line, col := position(data, offset)
	return fmt.Errorf("%s:%d:%d: %w", name, line, col, err)
}

// position turns an offset into a line and a column, both from 1; the column
// counts bytes.
func position(data []byte, offset int) (line, col int) {
	offset = min(max(offset, 0), len(data))
	before := data[:offset]
	return bytes.Count(before, []byte("\n")) + 1, offset - bytes.LastIndexByte(before, '\n')
}
