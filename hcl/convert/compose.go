package convert

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Compose is a Compose project in the form that the Compose specification resolves it to: short forms are written out,
// variables are replaced, and files are merged.
type Compose struct {
	Project  map[string]any
	Texts    map[string]string // contents of configs.NAME and secrets.NAME
	Unread   map[string]string // reasons why a content is missing
	Disabled []string          // services whose profiles are not active
	File     string            // the first file

	HostPaths bool // convert bind mounts to host paths
	// Locate returns the file and line of an attribute; 0 if it is not found.
	Locate func(path ...string) (string, int) `json:"-"`
}

// ReadCompose decodes the output of `gitops-controller compose`.
func ReadCompose(text []byte) (c Compose, err error) {
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("read the Compose project: %w", err)
	}
	return c, nil
}

// project is a conversion of a Compose project.
type project struct {
	Compose
	namespace string
	objects   []Object
	problems  []Problem
}

// Objects returns the Kubernetes objects of a project, and the attributes without a counterpart.
func (c Compose) Objects() ([]Object, []Problem) {
	name, _ := c.Project["name"].(string)
	p := &project{Compose: c, namespace: toLabel(name)}
	p.add([]string{"name"}, map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": p.namespace}})
	p.files("configs", "ConfigMap", "data")
	p.files("secrets", "Secret", "stringData")
	p.volumes()
	for name, v := range entries(p.Project["networks"]) {
		fields := attributes{p: p, path: []string{"networks", name}, fields: asMap(v)}
		fields.drop("name", "ipam")
		fields.reportRest()
	}
	for name, v := range entries(p.Project["services"]) {
		s := &service{project: p, name: toLabel(name)}
		s.attributes = attributes{p: p, path: []string{"services", name}, fields: asMap(v)}
		s.convert()
	}
	for _, name := range p.Disabled {
		p.report([]string{"services", name}, "its profiles are not active; activate them with -profile")
	}
	for _, field := range slices.Sorted(maps.Keys(p.Project)) {
		if !slices.Contains([]string{"name", "services", "networks", "volumes", "configs", "secrets"}, field) {
			p.report([]string{field}, noCounterpart)
		}
	}
	return p.objects, p.problems
}

const noCounterpart = "it has no counterpart in Kubernetes"

// add adds an object that an attribute declares.
func (p *project) add(path []string, content map[string]any) {
	file, line := p.position(path)
	p.objects = append(p.objects, Object{Content: content, File: file, Line: line})
}

func (p *project) report(path []string, format string, args ...any) {
	file, line := p.position(path)
	p.problems = append(p.problems, Problem{File: file, Line: line, Subject: strings.Join(path, "."),
		Message: fmt.Sprintf(format, args...)})
}

// position returns the file and line of an attribute, or of the nearest attribute around it.
func (p *project) position(path []string) (string, int) {
	for n := len(path); n > 0 && p.Locate != nil; n-- {
		if file, line := p.Locate(path[:n]...); line > 0 {
			return file, line
		}
	}
	return p.File, 1
}

// meta returns the metadata of an object.
func (p *project) meta(name string) map[string]any {
	return map[string]any{"name": name, "namespace": p.namespace}
}

// files adds a ConfigMap or Secret for each config or secret.
func (p *project) files(section, kind, field string) {
	for name, v := range entries(p.Project[section]) {
		fields := attributes{p: p, path: []string{section, name}, fields: asMap(v)}
		fields.drop("name", "file", "content", "environment")
		isExternal := fields.take("external") == true
		fields.reportRest()
		text, ok := p.Texts[section+"."+name]
		switch {
		case isExternal:
			p.report(fields.path, "it is external: create the %s %s/%s, with the key %q", kind, p.namespace,
				toLabel(name), fileKey)
		case !ok:
			p.report(fields.path, "its content cannot be read: %s", p.Unread[section+"."+name])
		default:
			p.add(fields.path, map[string]any{"apiVersion": "v1", "kind": kind, "metadata": p.meta(toLabel(name)),
				field: map[string]any{fileKey: text}})
		}
	}
}

// fileKey is the key of the content in the ConfigMap or Secret of a config or secret.
const fileKey = "content"

// volumes adds a claim for each volume.
func (p *project) volumes() {
	for name, v := range entries(p.Project["volumes"]) {
		fields := attributes{p: p, path: []string{"volumes", name}, fields: asMap(v)}
		fields.drop("name")
		if fields.take("external") == true {
			p.report(fields.path, "it is external: create the PersistentVolumeClaim %s/%s", p.namespace, toLabel(name))
			continue
		}
		meta := p.meta(toLabel(name))
		if labels := asMap(fields.take("labels")); len(labels) > 0 {
			meta["annotations"] = labels
		}
		fields.reportRest()
		p.add(fields.path, map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta,
			"spec": map[string]any{"accessModes": []any{"ReadWriteOnce"},
				"resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}}}})
	}
}

// attributes are the attributes of a part of the project that have not been converted yet.
type attributes struct {
	p      *project
	path   []string
	fields map[string]any
}

// take returns an attribute and marks it as converted.
func (a *attributes) take(name string) any {
	v := a.fields[name]
	delete(a.fields, name)
	return v
}

// drop marks attributes as converted.
func (a *attributes) drop(names ...string) {
	for _, name := range names {
		delete(a.fields, name)
	}
}

// below returns the attributes of an attribute.
func (a *attributes) below(name string) attributes {
	return attributes{p: a.p, path: append(slices.Clone(a.path), name), fields: asMap(a.take(name))}
}

// report reports an attribute.
func (a *attributes) report(name, format string, args ...any) {
	a.p.report(append(slices.Clone(a.path), name), format, args...)
}

// reportRest reports the attributes that were not converted.
func (a *attributes) reportRest() {
	for _, name := range slices.Sorted(maps.Keys(a.fields)) {
		if v := a.fields[name]; v != nil && v != false {
			a.report(name, noCounterpart)
		}
	}
}

// entries iterates over the entries of a map in the order of their names.
func entries(v any) func(func(string, any) bool) {
	m := asMap(v)
	return func(yield func(string, any) bool) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if !yield(name, m[name]) {
				return
			}
		}
	}
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return maps.Clone(m)
}

func asList(v any) []any {
	list, _ := v.([]any)
	return list
}

func asText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		return strings.TrimSuffix(fmt.Sprintf("%.6f", v), ".000000")
	default:
		return fmt.Sprint(v)
	}
}

// toLabel returns a name as a DNS label.
func toLabel(name string) string {
	label := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	label = strings.Trim(label[:min(len(label), 63)], "-")
	if label == "" {
		return "project"
	}
	return label
}
