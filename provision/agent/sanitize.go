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

// An agent's answer is not trusted, because its machine may be compromised. Answers therefore may not use much more
// memory than they have bytes. Texts may not contain terminal control sequences or add lines to a plan. File names must
// stay in their directory.

const (
	// maxValues limits the number of values in an answer: empty values take a few bytes on the wire and about a
	// hundred in memory.
	maxValues = 1 << 18
	// maxFiles and maxFileBytes limit a machine's part of a support bundle, somewhat above what support.Collect
	// creates.
	maxFiles     = 4096
	maxFileBytes = 32 << 20
)

// countValues counts the values of a JSON text by its commas outside of strings.
func countValues(text []byte) int {
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

// decodeFrame decodes the payload of a frame.
func decodeFrame(payload []byte, into any) error {
	if n := countValues(payload); n > maxValues {
		return fmt.Errorf("it has more than %d values: the other side does not speak the agent's protocol", maxValues)
	}
	return json.Unmarshal(payload, into)
}

// sanitize makes an answer to q safe to display and to use, or returns an error.
func (a *answer) sanitize(q request) error {
	a.Error = config.EscapeIndented(a.Error, "  ")
	fields := reflect.ValueOf(a).Elem()
	for i := range fields.NumField() {
		if fields.Type().Field(i).Name != "Error" {
			stripControls(fields.Field(i))
		}
	}
	a.Files = sanitizeFiles(a.Files)
	if q.Store == nil || a.Store == nil {
		return nil
	}
	for _, s := range a.Store.Snapshots {
		// A check of a user's file does not return a name.
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

// sanitizeFiles drops files whose names leave their directory, and files beyond the limits.
func sanitizeFiles(files []support.File) (list []support.File) {
	size := 0
	for _, f := range files {
		if !fs.ValidPath(f.Name) || f.Name == "." || strings.Contains(f.Name, `\`) {
			continue
		}
		if size += len(f.Content); len(list) == maxFiles || size > maxFileBytes {
			break
		}
		list = append(list, f)
	}
	return list
}

// stripControls removes terminal control characters from all texts in a value.
func stripControls(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(config.EscapeLine(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			stripControls(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				stripControls(f)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return // a file's content or a key
		}
		for i := range v.Len() {
			stripControls(v.Index(i))
		}
	case reflect.Map:
		stripControlsFromMap(v)
	}
}

func stripControlsFromMap(v reflect.Value) {
	if v.Type().Key().Kind() != reflect.String {
		return
	}
	for _, k := range v.MapKeys() {
		key, value := reflect.New(k.Type()).Elem(), reflect.New(v.Type().Elem()).Elem()
		key.Set(k)
		value.Set(v.MapIndex(k))
		stripControls(key)
		stripControls(value)
		v.SetMapIndex(k, reflect.Value{})
		v.SetMapIndex(key, value)
	}
}
