package compose

import (
	"fmt"
	"path"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
)

// mounter adds the volumes and mounts of a container.
type mounter struct {
	w      *workload
	prefix string // of the names of volumes
	mounts []any

	isPrivileged bool // the container is
}

// mounts converts volumes, configs and secrets.
func (w *workload) mounts(a *attributes, c map[string]any) {
	m := &mounter{w: w, isPrivileged: asMap(c["securityContext"])["privileged"] == true}
	if name := c["name"]; name != w.name {
		m.prefix = strings.TrimPrefix(asText(name), w.name+"-") + "-"
	}
	for i, v := range a.items("volumes") {
		m.volume(i, &v)
	}
	for i, v := range asList(a.take("tmpfs")) {
		target, options, _ := strings.Cut(asText(v), ":")
		m.memory(fmt.Sprintf("tmpfs-%d", i), target, 0)
		if options != "" {
			a.report("tmpfs", "the options %q have no counterpart in Kubernetes", options)
		}
	}
	if n := size(a.take("shm_size")); n > 0 {
		m.memory("shm", "/dev/shm", n)
	}
	for _, section := range []string{"configs", "secrets"} {
		for i, file := range a.items(section) {
			m.file(section, i, &file)
		}
	}
	if sortBy(m.mounts, "mountPath"); len(m.mounts) > 0 {
		c["volumeMounts"] = m.mounts
	}
}

// add adds a volume and its mount, which is returned.
func (m *mounter) add(name, target string, source map[string]any) map[string]any {
	source["name"] = m.prefix + name
	m.w.volumes = append(m.w.volumes, source)
	mount := map[string]any{"name": source["name"], "mountPath": target}
	m.mounts = append(m.mounts, mount)
	return mount
}

// memory adds a file system in memory of at most limit bytes, or without limit if that is 0.
func (m *mounter) memory(name, target string, limit int64) map[string]any {
	source := map[string]any{"medium": "Memory"}
	if limit > 0 {
		source["sizeLimit"] = fmt.Sprint(limit)
	}
	return m.add(name, target, map[string]any{"emptyDir": source})
}

// volume converts a mount of a volume, a path or an image.
func (m *mounter) volume(i int, v *attributes) {
	name, source, target := fmt.Sprintf("volume-%d", i), v.text("source"), v.text("target")
	var mount map[string]any
	switch kind := v.text("type"); {
	case kind == "volume":
		options := v.below("volume")
		from := map[string]any{"emptyDir": map[string]any{}}
		if source != "" {
			from = map[string]any{"persistentVolumeClaim": map[string]any{"claimName": m.w.claims["volumes."+source]}}
		}
		mount = m.add(name, target, from)
		if subpath := options.text("subpath"); subpath != "" {
			mount["subPath"] = subpath
		}
		options.reportRest()
	case kind == "tmpfs":
		options := v.below("tmpfs")
		mount = m.memory(name, target, size(options.take("size")))
		options.reportRest()
	case kind == "image":
		options := v.below("image")
		mount = m.add(name, target, map[string]any{"image": map[string]any{"reference": source}})
		if subpath := options.text("subpath"); subpath != "" {
			mount["subPath"] = subpath
		}
		options.reportRest()
	case kind == "bind" && m.w.hostPaths:
		mount = m.bind(name, source, target, v)
	case kind == "bind":
		v.p.report(v.path, "it is a path of this machine: use a config, a secret or a volume, or -host-paths to mount "+
			"it from the nodes")
		return
	default:
		v.p.report(v.path, "Kubernetes does not mount anything of the type %q", kind)
		return
	}
	if v.is("read_only") {
		mount["readOnly"] = true
	}
	v.reportRest()
}

// bind converts a mount of a path.
func (m *mounter) bind(name, source, target string, v *attributes) map[string]any {
	options := v.below("bind")
	from := map[string]any{"path": source}
	if options.is("create_host_path") {
		from["type"] = "DirectoryOrCreate"
	}
	mount := m.add(name, target, map[string]any{"hostPath": from})
	switch propagation := strings.TrimPrefix(options.text("propagation"), "r"); {
	case propagation == "shared" && m.isPrivileged:
		mount["mountPropagation"] = "Bidirectional"
	case propagation == "shared":
		options.report("propagation", "it needs a privileged container in Kubernetes")
	case propagation == "slave":
		mount["mountPropagation"] = "HostToContainer"
	}
	switch options.fields["recursive"] {
	case "enabled": // the default
		options.drop("recursive")
	case "readonly":
		mount["recursiveReadOnly"] = "Enabled"
		options.drop("recursive")
	}
	options.reportRest()
	return mount
}

// file converts a mount of a config or secret.
func (m *mounter) file(section string, i int, f *attributes) {
	source, target := f.text("source"), f.text("target")
	folder, field, nameField := "/", "configMap", "name"
	if section == "secrets" {
		folder, field, nameField = "/run/secrets", "secret", "secretName"
	}
	if target == "" {
		target = source
	}
	if !path.IsAbs(target) {
		target = path.Join(folder, target)
	}
	from := map[string]any{nameField: m.w.claims[section+"."+source]}
	if v := f.take("mode"); v != nil {
		var mode types.FileMode
		if err := mode.DecodeMapstructure(v); err != nil {
			f.report("mode", "%v", err)
		} else {
			from["defaultMode"] = int64(mode)
		}
	}
	for _, owner := range []string{"uid", "gid"} {
		if asText(f.fields[owner]) == "0" {
			f.drop(owner)
		}
	}
	f.reportRest()
	mount := m.add(fmt.Sprintf("%s-%d", strings.TrimSuffix(section, "s"), i), target, map[string]any{field: from})
	mount["subPath"], mount["readOnly"] = fileKey, true
}
