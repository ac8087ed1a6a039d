package fetch

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testLimits are limits that a test reaches quickly.
var testLimits = archiveLimits{bytes: 8 << 20, entries: 1000}

// archived is an entry of an archive.
type archived struct {
	name, text string
	kind       byte // tar.TypeReg if 0
	link       string
}

// pack returns an archive.
func pack(t testing.TB, entries ...archived) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	archive := tar.NewWriter(compressed)
	for _, e := range entries {
		if e.kind == 0 {
			e.kind = tar.TypeReg
		}
		err := archive.WriteHeader(&tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link,
			Size: int64(len(e.text)),
			Mode: 0o777, Format: tar.FormatPAX})
		if err == nil && e.text != "" {
			_, err = io.WriteString(archive, e.text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), compressed.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestArchivesAreUnpacked(t *testing.T) {
	for name, row := range map[string]struct {
		strip   bool
		entries []archived
		want    map[string]string
	}{
		"a folder": {false, []archived{{name: "./", kind: tar.TypeDir}, {name: "./a.yaml", text: "one"},
			{name: "deep/er/", kind: tar.TypeDir}, {name: "deep/er/b.yaml", text: "two"}},
			map[string]string{"a.yaml": "one", "deep/er/b.yaml": "two"}},
		"a chart": {true, []archived{{name: "web/Chart.yaml", text: "name: web"}, {name: "web/templates/a", text: "x"}},
			map[string]string{"Chart.yaml": "name: web", "templates/a": "x"}},
	} {
		dir := t.TempDir()
		if err := unpack(t.Context(), bytes.NewReader(pack(t, row.entries...)), dir, row.strip,
			testLimits); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for file, want := range row.want {
			text, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil || string(text) != want {
				t.Errorf("%s: %s is %q, %v", name, file, text, err)
			}
			if info, err := os.Stat(filepath.Join(dir, file)); err == nil && info.Mode().Perm()&0o111 != 0 {
				t.Errorf("%s: %s can be run", name, file)
			}
		}
	}
}

// zeros is a reader of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// bomb returns a small archive with a file that is too large.
func bomb(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewWriter(compressed)
	err = archive.WriteHeader(&tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: 2 * testLimits.bytes, Mode: 0o600})
	if err == nil {
		_, err = io.CopyN(archive, zeros{}, 2*testLimits.bytes)
	}
	if err := errors.Join(err, archive.Close(), compressed.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// sparse returns an archive with a file of a terabyte of which no byte is stored.
func sparse(t *testing.T) []byte {
	t.Helper()
	const size = "1099511627776"
	record := func(key, value string) string {
		line := " " + key + "=" + value + "\n"
		n := len(line) + 2
		if n > 99 {
			n++
		}
		return fmt.Sprint(n) + line
	}
	header := func(name string, kind byte, text string) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(len(text)), Mode: 0o600,
			Format: tar.FormatUSTAR}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		block := out.Bytes()
		block[156] = kind
		copy(block[148:156], "        ")
		sum := 0
		for _, b := range block[:512] {
			sum += int(b)
		}
		copy(block[148:156], fmt.Sprintf("%06o\x00 ", sum))
		return block
	}
	text := record("GNU.sparse.major", "0") + record("GNU.sparse.minor", "1") + record("GNU.sparse.name", "a") +
		record("GNU.sparse.size", size) + record("GNU.sparse.numblocks", "1") + record("GNU.sparse.map", size+",0")
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	_, err := compressed.Write(append(append(header("x", tar.TypeXHeader, text), header("a", tar.TypeReg, "")...),
		make([]byte, 1024)...))
	if err := errors.Join(err, compressed.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestHostileArchivesAreRefused(t *testing.T) {
	file := func(name string) []byte { return pack(t, archived{name: name, text: "x"}) }
	var many []archived
	for range testLimits.entries + 1 {
		many = append(many, archived{name: "f", kind: tar.TypeDir})
	}
	var folders []archived
	for i := range testLimits.entries/50 + 1 {
		folders = append(folders, archived{name: fmt.Sprint(i) + strings.Repeat("/d", 60) + "/a", text: "x"})
	}
	for name, row := range map[string]struct {
		archive []byte
		strip   bool
		want    string
	}{
		"no gzip": {[]byte("PK"), false, "gzip"},
		"nothing": {pack(t), false, "no files"},
		"a symbolic link": {pack(t, archived{name: "a", kind: tar.TypeSymlink, link: "/etc/passwd"}), false,
			"a link"},
		"a hard link":         {pack(t, archived{name: "a", kind: tar.TypeLink, link: "/etc/passwd"}), false, "a link"},
		"a device":            {pack(t, archived{name: "a", kind: tar.TypeChar}), false, "neither a file nor a folder"},
		"a pipe":              {pack(t, archived{name: "a", kind: tar.TypeFifo}), false, "neither a file nor a folder"},
		"a path that climbs":  {file("../a"), false, "no path below"},
		"one that climbs out": {file("a/../../b"), false, "no path below"},
		"an absolute path":    {file("/etc/passwd"), false, "no path below"},
		"a backslash":         {file(`..\a`), false, "no path below"},
		"a deep path":         {file(strings.Repeat("d/", maxArchiveDepth) + "a"), false, "no path below"},
		"a long path":         {file(strings.Repeat("d", maxArchiveName+1)), false, "no path below"},
		"a file twice": {pack(t, archived{name: "a", text: "x"}, archived{name: "./a", text: "y"}), false,
			"two entries"},
		"a file and a folder": {pack(t, archived{name: "a", text: "x"}, archived{name: "a/b", text: "y"}), false,
			"a file and a folder"},
		"a folder and a file": {pack(t, archived{name: "a/b", text: "x"}, archived{name: "a", text: "y"}), false,
			"two entries"},
		"many entries":  {pack(t, many...), false, "entries"},
		"many folders":  {pack(t, folders...), false, "folders"},
		"a bomb":        {bomb(t), false, "more than"},
		"a sparse file": {sparse(t), false, "more than"},
		"a file beside a chart": {pack(t, archived{name: "web/a", text: "x"}, archived{name: "b", text: "x"}), true,
			"outside"},
		"two charts": {pack(t, archived{name: "web/a", text: "x"}, archived{name: "db/a", text: "x"}), true,
			"outside"},
		"half of an archive": {pack(t, archived{name: "a", text: strings.Repeat("x", 4096)})[:60], false,
			"unexpected EOF"},
	} {
		dir := t.TempDir()
		err := unpack(t.Context(), bytes.NewReader(row.archive), dir, row.strip, testLimits)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(pack(f, archived{name: "a/b", text: "x"}), true)
	f.Fuzz(func(t *testing.T, archive []byte, strip bool) {
		dir := t.TempDir()
		inner := filepath.Join(dir, "inner")
		if err := os.Mkdir(inner, 0o700); err != nil {
			t.Fatal(err)
		}
		_ = unpack(t.Context(), bytes.NewReader(archive), inner, strip, testLimits) // must not write elsewhere
		list, err := os.ReadDir(dir)
		if err != nil || len(list) != 1 {
			t.Errorf("%v, %v", list, err)
		}
	})
}
