package block

import (
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"clusterctl/hcl/config"
)

type claimBlock struct {
	Name        string   `hcl:"name,label"`
	Size        string   `hcl:"size" doc:"Requested size, as \"10Gi\"."`
	Class       string   `hcl:"class,optional" doc:"Name of a StorageClass, often storage_class.NAME.name." default:"the default class"`
	AccessModes []string `hcl:"access_modes,optional" doc:"Access modes: ReadWriteOnce, ReadOnlyMany, ReadWriteMany or ReadWriteOncePod." default:"[\"ReadWriteOnce\"]"`
}

type workloadIngressBlock struct {
	Host        string            `hcl:"host,optional" doc:"Host name of requests, as \"shop.example\" or \"*.shop.example\"." default:"any"`
	Paths       map[string]string `hcl:"paths,optional" doc:"Paths to names of the service's ports." default:"{ \"/\" = the service's only port }"`
	PathType    string            `hcl:"path_type,optional" doc:"Prefix, Exact or ImplementationSpecific." default:"\"Prefix\""`
	TLSSecret   string            `hcl:"tls_secret,optional" doc:"Secret of the namespace with the host's certificate and key." default:"no TLS"`
	Class       string            `hcl:"class,optional" doc:"Name of an IngressClass." default:"the default class"`
	Annotations map[string]string `hcl:"annotations,optional" doc:"Annotations of the Ingress."`
}

type autoscalingBlock struct {
	Min    *int `hcl:"min,optional" doc:"Minimum number of pods." default:"1"`
	Max    int  `hcl:"max" doc:"Maximum number of pods."`
	CPU    *int `hcl:"cpu,optional" doc:"Wanted average use of processors, in percent of the containers' requests."`
	Memory *int `hcl:"memory,optional" doc:"Wanted average use of memory, in percent of the containers' requests."`
}

type budgetBlock struct {
	MinAvailable   string `hcl:"min_available,optional" doc:"How many pods stay available, a number or a percentage."`
	MaxUnavailable string `hcl:"max_unavailable,optional" doc:"How many pods may be unavailable, a number or a percentage."`
}

// labelledRange returns the range of an attribute of the nested block with a type and a label, or of that block.
func labelledRange(b *hcl.Block, typ, label, name string) *hcl.Range {
	if native, ok := nativeBody(b.Body); ok {
		for _, inner := range native.Blocks {
			if inner.Type != typ || !slices.Contains(inner.Labels, label) {
				continue
			}
			if a, ok := inner.Body.Attributes[name]; ok {
				return a.SrcRange.Ptr()
			}
			return inner.DefRange().Ptr()
		}
	}
	return attributeRange(b, b.Body, typ)
}

// accessModes are the access modes of claims.
var accessModes = []string{string(corev1.ReadWriteOnce), string(corev1.ReadOnlyMany), string(corev1.ReadWriteMany),
	string(corev1.ReadWriteOncePod)}

// decode decodes a claim. typ is the type of its block.
func (raw claimBlock) decode(b *hcl.Block, typ string) (c config.Claim, diags hcl.Diagnostics) {
	wrong := func(name, summary, format string, args ...any) {
		diags = append(diags, newError(labelledRange(b, typ, raw.Name, name), summary, format, args...))
	}
	c = config.Claim{Name: raw.Name, Size: raw.Size, Class: raw.Class, AccessModes: raw.AccessModes}
	if len(c.AccessModes) == 0 {
		c.AccessModes = []string{string(corev1.ReadWriteOnce)}
	}
	if errs := validation.IsDNS1123Label(c.Name); len(errs) > 0 {
		wrong("", "Invalid volume name", "%q: %s.", c.Name, errs[0])
	}
	if size, err := resource.ParseQuantity(c.Size); err != nil || size.Sign() <= 0 {
		wrong("size", "Invalid size", "%q is not a size such as \"10Gi\".", c.Size)
	}
	if errs := validation.IsDNS1123Subdomain(c.Class); c.Class != "" && len(errs) > 0 {
		wrong("class", "Invalid class", "%q: %s.", c.Class, errs[0])
	}
	for _, mode := range c.AccessModes {
		if !slices.Contains(accessModes, mode) {
			wrong("access_modes", "Unknown access mode", "%q is not known.%s The modes are %s.", mode,
				Suggest(mode, accessModes), joinWords(accessModes))
		}
	}
	if len(c.AccessModes) > 1 && slices.Contains(c.AccessModes, string(corev1.ReadWriteOncePod)) {
		wrong("access_modes", "Invalid access modes", "ReadWriteOncePod cannot be combined with other modes.")
	}
	return c, diags
}

func (d *formDecoder) decodeIngress() {
	raw := d.raw.Ingress
	if raw == nil {
		return
	}
	wrong := func(name, summary, format string, args ...any) {
		d.diags = append(d.diags, newError(nestedRange(d.b, "ingress", name), summary, format, args...))
	}
	in := &config.WorkloadIngress{Host: raw.Host, Class: raw.Class, TLSSecret: raw.TLSSecret,
		Paths:    maps.Clone(raw.Paths),
		PathType: orDefault(raw.PathType, "Prefix"), Annotations: raw.Annotations}
	d.w.Ingress = in
	if d.w.Service == nil {
		wrong("", "No service", "An ingress sends requests to the service of its workload. Add a service block.")
		return
	}
	ports := sortedKeys(d.w.Service.Ports)
	if len(in.Paths) == 0 && len(ports) == 1 {
		in.Paths = map[string]string{"/": ports[0]}
	} else if len(in.Paths) == 0 {
		wrong("", "No paths", "The service has several ports. Write paths = { \"/\" = \"PORT\" }.")
	}
	for _, path := range sortedKeys(in.Paths) {
		if !strings.HasPrefix(path, "/") {
			wrong("paths", "Invalid path", "%q does not begin with a slash.", path)
		}
		if port := in.Paths[path]; !slices.Contains(ports, port) {
			wrong("paths", "Unknown port", "The service has no port named %q.%s", port, Suggest(port, ports))
		}
	}
	if types := []string{"Prefix", "Exact", "ImplementationSpecific"}; !slices.Contains(types, in.PathType) {
		wrong("path_type", "Unknown path type", "%q is not known.%s The types are %s.", in.PathType,
			Suggest(in.PathType, types), joinWords(types))
	}
	host := strings.TrimPrefix(in.Host, "*.")
	_, err := netip.ParseAddr(in.Host)
	if in.Host != "" && (len(validation.IsDNS1123Subdomain(host)) > 0 || err == nil) {
		wrong("host", "Invalid host", "%q is not a DNS name, such as \"shop.example\" or \"*.shop.example\".", in.Host)
	}
	values := map[string]string{"tls_secret": in.TLSSecret, "class": in.Class}
	for _, name := range sortedKeys(values) {
		value := values[name]
		if errs := validation.IsDNS1123Subdomain(value); value != "" && len(errs) > 0 {
			wrong(name, "Invalid "+name, "%q: %s.", value, errs[0])
		}
	}
}

func (d *formDecoder) decodeAutoscaling() {
	raw := d.raw.Autoscaling
	if raw == nil {
		return
	}
	wrong := func(name, format string, args ...any) {
		d.diags = append(d.diags, newError(nestedRange(d.b, "autoscaling", name), "Invalid autoscaling", format,
			args...))
	}
	a := &config.Autoscaling{Min: valueOr(raw.Min, 1), Max: raw.Max, CPU: valueOr(raw.CPU, 0),
		Memory: valueOr(raw.Memory, 0)}
	d.w.Autoscaling = a
	if d.raw.Replicas != nil {
		d.wrong("replicas", "Unused replicas", "The autoscaling block sets the number of pods. Leave replicas out.")
	}
	switch {
	case a.Min < 1:
		wrong("min", "min is at least 1.")
	case a.Max < a.Min:
		wrong("max", "max, %d, is less than min, %d.", a.Max, a.Min)
	case a.Max > math.MaxInt32:
		wrong("max", "max is at most %d.", math.MaxInt32)
	case raw.CPU == nil && raw.Memory == nil:
		wrong("", "Write what to measure, as cpu = 80.")
	}
	values := map[string]*int{"cpu": raw.CPU, "memory": raw.Memory}
	for _, name := range sortedKeys(values) {
		value := values[name]
		if value != nil && (*value < 1 || *value > math.MaxInt32) {
			wrong(name, "%s is a percentage of at least 1.", name)
		}
	}
}

func (d *formDecoder) decodeBudget() {
	raw := d.raw.Budget
	if raw == nil {
		return
	}
	d.w.Budget = &config.Budget{MinAvailable: raw.MinAvailable, MaxUnavailable: raw.MaxUnavailable}
	if (raw.MinAvailable == "") == (raw.MaxUnavailable == "") {
		d.wrong("budget", "Invalid budget", "A budget has either min_available or max_unavailable.")
	}
	texts := map[string]string{"min_available": raw.MinAvailable,
		"max_unavailable": raw.MaxUnavailable}
	for _, name := range sortedKeys(texts) {
		text := texts[name]
		if text != "" && !isShare(text, true) {
			d.diags = append(d.diags, newError(nestedRange(d.b, "budget", name), "Invalid budget",
				"%q is not a number of pods, as 1, or a percentage, as \"50%%\".", text))
		}
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// portNumber returns the number of a port, and reports whether the text is one.
func portNumber(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && len(validation.IsValidPortNum(n)) == 0
}
