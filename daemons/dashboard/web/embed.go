// Package web holds the dashboard's pages: HTML, one style sheet, and ES modules. They are served as they are.
package web

import "embed"

// Files are the files of the pages.
//
//go:embed *.html app
var Files embed.FS
