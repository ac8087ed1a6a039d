package compose

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"clusterctl/hcl/convert"
)

// Keys and labels of the objects.
const (
	nameLabel = "app.kubernetes.io/name"
	fileKey   = "content" // key of the content in the ConfigMap or Secret of a config or secret
)

// project is a conversion of a Compose project.
type project struct {
	*source
	name      string
	namespace string
	claims    map[string]string   // names of objects by volumes.NAME, configs.NAME and secrets.NAME
	members   map[string][]string // labels of services by network
	isolates  bool                // some service has another network than default
	internal  map[string]bool     // networks without a way out
	converted convert.Converted
}

// convert returns the Kubernetes objects of a project, and the attributes without a counterpart.
func (s *source) convert() convert.Converted {
	p := &project{source: s, name: asText(s.model["name"]), claims: map[string]string{}, members: map[string][]string{},
		internal: map[string]bool{}}
	p.namespace = toLabel(p.name)
	top := attributes{p: p, fields: maps.Clone(s.model)}
	top.drop("name")
	p.add([]string{"name"}, map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": p.namespace}})
	for _, root := range s.roots {
		if line := findLine(root, []string{"version"}, 0); line > 0 {
			p.report([]string{"version"}, "Compose ignores it")
			break
		}
	}
	for _, variable := range p.unset {
		p.report([]string{"$" + variable}, "the variable is not set, so nothing replaces it: set it, or use -env")
	}
	p.files(top.below("configs"), "ConfigMap")
	p.files(top.below("secrets"), "Secret")
	p.volumes(top.below("volumes"))
	services, jobs := top.below("services"), top.below("jobs")
	p.networks(top.below("networks"), services, jobs)
	for _, section := range []attributes{services, jobs} {
		for name := range entries(section.fields) {
			w := &workload{project: p, attributes: section.below(name), name: toLabel(name)}
			if !slices.Contains(p.disabled, strings.Join(w.path, ".")) {
				w.convert()
			} else {
				p.report(w.at("profiles"), "none of them is active: activate one with -profile")
			}
		}
	}
	for name := range entries(asMap(top.fields["models"])) {
		p.report([]string{"models", name}, "%s", reason("models"))
	}
	top.drop("models")
	top.reportRest()
	return p.converted
}

// add adds an object that an attribute declares.
func (p *project) add(path []string, content map[string]any) {
	file, line := p.position(path)
	p.converted.Objects = append(p.converted.Objects, convert.Object{Content: content, File: file, Line: line})
}

// report lists an attribute without a counterpart.
func (p *project) report(path []string, format string, args ...any) {
	file, line := p.position(path)
	p.converted.Problems = append(p.converted.Problems, convert.Problem{File: file, Line: line, Subject: subject(path),
		Message: fmt.Sprintf(format, args...)})
}

// subject returns the path of an attribute as it is reported, such as services.web.ports[0].
func subject(path []string) string { return strings.ReplaceAll(strings.Join(path, "."), ".[", "[") }

// position returns the file and line of an attribute, or of the nearest attribute around it.
func (p *project) position(path []string) (string, int) {
	for n := len(path); n > 0; n-- {
		if file, line := p.find(path[:n]); line > 0 {
			return file, line
		}
	}
	return p.names[0], 1
}

// meta returns the metadata of an object.
func (p *project) meta(name string) map[string]any {
	return map[string]any{"name": name, "namespace": p.namespace}
}

// resource returns the name of the object of a volume, config or secret, and reports whether the project declares it.
func (p *project) resource(section, name string, a *attributes, kind string) (string, bool) {
	given := a.text("name")
	isExternal := a.is("external")
	object := toLabel(name)
	if given != "" && given != p.name+"_"+name && given != name {
		object = toLabel(given)
	}
	p.claims[section+"."+name] = object
	if isExternal {
		p.report(a.at("external"), "it is not part of the project: create the %s %s/%s", kind, p.namespace, object)
	}
	return object, !isExternal
}

// annotated adds labels of Docker to the metadata of an object. Their values may be longer than those of Kubernetes.
func annotated(meta map[string]any, labels map[string]any) map[string]any {
	notes := map[string]any{}
	for name, v := range labels {
		notes[name] = asText(v)
	}
	if len(notes) > 0 {
		meta["annotations"] = notes
	}
	return meta
}

// files adds a ConfigMap or Secret for each config or secret.
func (p *project) files(section attributes, kind string) {
	for name := range entries(section.fields) {
		a := section.below(name)
		object, isOwn := p.resource(section.path[0], name, &a, kind+" with the key "+fileKey)
		labels := pairs(a.take("labels"))
		content, file, variable := a.take("content"), a.text("file"), a.text("environment")
		a.reportRest()
		if !isOwn {
			continue
		}
		var text []byte
		switch value, isSet := p.environ[variable]; {
		case content != nil:
			text = []byte(asText(content))
		case variable != "" && isSet:
			text = []byte(value)
		case variable != "":
			p.report(a.at("environment"), "the variable %s is not set", variable)
			continue
		default:
			var err error
			if text, err = readFile(file, maxText); err != nil {
				p.report(a.at("file"), "%v", err)
				continue
			}
		}
		fields := map[string]any{"apiVersion": "v1", "kind": kind, "metadata": annotated(p.meta(object), labels)}
		switch isText := utf8.Valid(text); {
		case kind == "ConfigMap" && isText:
			fields["data"] = map[string]any{fileKey: string(text)}
		case kind == "ConfigMap":
			fields["binaryData"] = map[string]any{fileKey: base64.StdEncoding.EncodeToString(text)}
		case isText:
			fields["stringData"] = map[string]any{fileKey: string(text)}
		default:
			fields["data"] = map[string]any{fileKey: base64.StdEncoding.EncodeToString(text)}
		}
		p.add(a.path, fields)
	}
}

// volumes adds a claim for each volume.
func (p *project) volumes(section attributes) {
	for name := range entries(section.fields) {
		a := section.below(name)
		object, isOwn := p.resource("volumes", name, &a, "PersistentVolumeClaim")
		labels := pairs(a.take("labels"))
		if a.fields["driver"] == "local" {
			a.drop("driver")
		}
		a.reportRest()
		if isOwn {
			p.add(a.path, map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim",
				"metadata": annotated(p.meta(object), labels),
				"spec": map[string]any{"accessModes": []any{"ReadWriteOnce"},
					"resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}}}})
		}
	}
}

// networks finds which services share a network.
func (p *project) networks(section attributes, workloads ...attributes) {
	for name := range entries(section.fields) {
		a := section.below(name)
		p.internal[name] = a.is("internal")
		if given := asText(a.fields["name"]); given == p.name+"_"+name || given == name {
			a.drop("name")
		}
		if driver := a.fields["driver"]; driver == "bridge" || driver == "default" || driver == "overlay" {
			a.drop("driver") // the cluster's network reaches all nodes
		}
		if a.is("external") {
			a.report("external", "a network is that of one namespace: services of other projects do not share it")
		}
		a.reportRest()
	}
	for _, w := range workloads {
		for name, v := range entries(w.fields) {
			if slices.Contains(p.disabled, w.path[0]+"."+name) || asMap(v)["network_mode"] != nil {
				continue
			}
			for network := range pairs(asMap(v)["networks"]) {
				p.members[network] = append(p.members[network], toLabel(name))
				p.isolates = p.isolates || network != "default"
			}
		}
	}
}
