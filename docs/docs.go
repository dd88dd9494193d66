// Package docs embeds the pages that the program itself shows, and the schemas
// that its output keeps to.
package docs

import "embed"

// FS holds codes/CODE.md, a page for each diagnosis, and schema/*.json.
//
//go:embed codes/*.md schema/*.json
var FS embed.FS
