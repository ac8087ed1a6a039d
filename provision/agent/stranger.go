package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"

	"clusterctl/daemons/config/store"
	"clusterctl/hcl/config"
	"clusterctl/provision/support"
)

// What an agent answers is as good as its machine, and that may be anybody's: root there can say what he likes. So an
// answer costs about as much memory as it has bytes, texts in it command no terminal and add no lines to a plan, and
// names stay in their folder.

const (
	// mostValues bounds what one answer is made of: empty values take a few bytes on the way and a hundred in memory.
	mostValues = 1 << 18
	// mostFiles and mostBytes bound a machine's part of a support bundle: a few more than support.Collect makes.
	mostFiles = 4096
	mostBytes = 32 << 20
)

// values counts what stands between a JSON text's commas, outside of strings.
func values(text []byte) int {
	n, quoted := 1, false
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			quoted = !quoted
		case ',':
			if !quoted {
				n++
			}
		}
	}
	return n
}

// understand reads what came in a frame.
func understand(payload []byte, into any) error {
	if n := values(payload); n > mostValues {
		return fmt.Errorf("it has more than %d values: the other side does not speak the agent's protocol", mostValues)
	}
	return json.Unmarshal(payload, into)
}

// tame makes an answer one that can be shown and followed. q is what was asked.
func (a *answer) tame(q request) error {
	a.Error = config.Indented(a.Error, "  ")
	said := reflect.ValueOf(a).Elem()
	for i := range said.NumField() {
		if said.Type().Field(i).Name != "Error" {
			plain(said.Field(i))
		}
	}
	a.Files = tameFiles(a.Files)
	if q.Store == nil || a.Store == nil {
		return nil
	}
	for _, s := range a.Store.Snapshots {
		// A check of a file that somebody has brought says nothing of a name.
		if s.Name == "" && (q.Store.Op == store.Check || q.Store.Op == store.FromData) {
			continue
		}
		if !store.IsName(s.Name) {
			return fmt.Errorf("it says of a snapshot that its name is %q", s.Name)
		}
	}
	switch q.Store.Op {
	case store.Save, store.Check, store.FromData:
		if len(a.Store.Snapshots) != 1 {
			return errors.New("it says nothing of the snapshot that it was asked about")
		}
	}
	return nil
}

// tameFiles leaves out files whose names lead out of their folder, and what is more than a support bundle has.
func tameFiles(files []support.File) (list []support.File) {
	size := 0
	for _, f := range files {
		if !fs.ValidPath(f.Name) || f.Name == "." || strings.Contains(f.Name, `\`) {
			continue
		}
		if size += len(f.Content); len(list) == mostFiles || size > mostBytes {
			break
		}
		list = append(list, f)
	}
	return list
}

// plain has all texts of a value say nothing to a terminal.
func plain(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(config.PlainLine(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			plain(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				plain(f)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return // a file's content, or a key
		}
		for i := range v.Len() {
			plain(v.Index(i))
		}
	case reflect.Map:
		plainMap(v)
	}
}

func plainMap(v reflect.Value) {
	if v.Type().Key().Kind() != reflect.String {
		return
	}
	for _, k := range v.MapKeys() {
		key, value := reflect.New(k.Type()).Elem(), reflect.New(v.Type().Elem()).Elem()
		key.Set(k)
		value.Set(v.MapIndex(k))
		plain(key)
		plain(value)
		v.SetMapIndex(k, reflect.Value{})
		v.SetMapIndex(key, value)
	}
}
