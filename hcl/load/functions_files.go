package load

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"clusterctl/hcl/data"
)

var (
	absPathFunc    = textFunc(1, func(a []string) (string, error) { return filepath.Abs(a[0]) })
	baseNameFunc   = textFunc(1, func(a []string) (string, error) { return filepath.Base(a[0]), nil })
	dirNameFunc    = textFunc(1, func(a []string) (string, error) { return filepath.Dir(a[0]), nil })
	pathExpandFunc = textFunc(1, func(a []string) (string, error) {
		if a[0] == "~" || strings.HasPrefix(a[0], "~/") {
			home, err := os.UserHomeDir()
			return filepath.Join(home, a[0][1:]), err
		}
		return a[0], nil
	})
)

// maxDigested is the maximum size in bytes of a file to be digested.
const maxDigested = 1 << 30

// addFileFunctions adds the functions that read files of a place.
func addFileFunctions(f map[string]function.Function, in place) {
	read := func(path string) ([]byte, error) { return data.ReadFile(in.path(path)) }
	f["file"] = textFunc(1, func(a []string) (string, error) {
		content, err := read(a[0])
		if err == nil && !utf8.Valid(content) {
			err = fmt.Errorf("%s is not UTF-8 text; filebase64 reads any file", a[0])
		}
		return string(content), err
	})
	f["filebase64"] = textFunc(1, func(a []string) (string, error) {
		content, err := read(a[0])
		return base64.StdEncoding.EncodeToString(content), err
	})
	for _, name := range []string{"sha256", "sha512", "sha1", "md5"} {
		f["file"+name] = textFunc(1, func(a []string) (string, error) {
			content, err := data.ReadLimited(in.path(a[0]), maxDigested)
			return digestText(name, false, content), err
		})
		if name == "sha256" || name == "sha512" {
			f["filebase64"+name] = textFunc(1, func(a []string) (string, error) {
				content, err := data.ReadLimited(in.path(a[0]), maxDigested)
				return digestText(name, true, content), err
			})
		}
	}
	f["fileexists"] = function.New(&function.Spec{
		Params: []function.Parameter{{Name: "path", Type: cty.String}},
		Type:   function.StaticReturnType(cty.Bool),
		Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) {
			info, err := os.Stat(in.path(a[0].AsString()))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return cty.NilVal, err // it is unknown whether the file exists
			}
			if err == nil && !info.Mode().IsRegular() {
				what := "not a regular file"
				if info.IsDir() {
					what = "a directory, not a file"
				}
				return cty.NilVal, function.NewArgErrorf(0, "%s is %s", a[0].AsString(), what)
			}
			return cty.BoolVal(err == nil), nil
		},
	})
	f["fileset"] = function.New(&function.Spec{
		Params: []function.Parameter{{Name: "dir", Type: cty.String}, {Name: "pattern", Type: cty.String}},
		Type:   function.StaticReturnType(cty.Set(cty.String)),
		Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) {
			base := in.path(a[0].AsString())
			// A missing or unmounted directory must not count as empty, because what its files declare would be
			// removed.
			if _, err := os.ReadDir(base); err != nil {
				return cty.NilVal, function.NewArgError(0, err)
			}
			matches, err := in.match(base, a[1].AsString())
			if err != nil {
				return cty.NilVal, function.NewArgError(1, err)
			}
			var list []cty.Value
			for _, m := range matches {
				info, err := os.Stat(m)
				if err != nil {
					return cty.NilVal, function.NewArgError(1, err)
				}
				if info.Mode().IsRegular() {
					rel, err := filepath.Rel(base, m)
					if err != nil {
						return cty.NilVal, err
					}
					list = append(list, cty.StringVal(filepath.ToSlash(rel)))
				}
			}
			if len(list) == 0 {
				return cty.SetValEmpty(cty.String), nil
			}
			return cty.SetVal(list), nil
		},
	})
	f["templatefile"] = templateFileFunc(f, read)
	f["templatestring"] = templateStringFunc(f)
}
