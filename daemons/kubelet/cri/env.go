package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sort"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/pod"
)

// Objects reads the objects that a pod refers to.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Env returns a container's environment: the services' variables, then envFrom, then env. It expands $(NAME) with
// variables that come before.
func Env(
	ctx context.Context,
	p *corev1.Pod,
	spec *corev1.Container,
	objects Objects,
	services []*corev1.Service,
	node pod.Node,
) ([]*runtime.KeyValue, error) {
	values := map[string]string{}
	var order []string
	set := func(k, v string) {
		if _, ok := values[k]; !ok {
			order = append(order, k)
		}
		values[k] = v
	}
	for _, kv := range ServiceEnv(p, services) {
		set(kv.Key, string(kv.Value))
	}
	for _, from := range spec.EnvFrom {
		data, err := envSource(ctx, p.Namespace, from, objects)
		if err != nil {
			return nil, err
		}
		for _, k := range sortedKeys(data) {
			set(from.Prefix+k, data[k])
		}
	}
	for _, e := range spec.Env {
		v := expand(e.Value, values)
		if e.ValueFrom != nil {
			var ok bool
			var err error
			if v, ok, err = envValue(ctx, p, spec, e.ValueFrom, objects, node); err != nil {
				return nil, err
			} else if !ok {
				continue
			}
		}
		set(e.Name, v)
	}
	env := make([]*runtime.KeyValue, 0, len(order))
	for _, k := range order {
		env = append(env, &runtime.KeyValue{Key: k, Value: []byte(values[k])})
	}
	return env, nil
}

func envSource(
	ctx context.Context,
	namespace string,
	from corev1.EnvFromSource,
	objects Objects,
) (map[string]string, error) {
	data := map[string]string{}
	switch {
	case from.ConfigMapRef != nil:
		m, err := objects.ConfigMap(ctx, namespace, from.ConfigMapRef.Name)
		if err != nil {
			return nil, ignoreMissing(err, from.ConfigMapRef.Optional)
		}
		for k, v := range m.Data {
			data[k] = v
		}
	case from.SecretRef != nil:
		s, err := objects.Secret(ctx, namespace, from.SecretRef.Name)
		if err != nil {
			return nil, ignoreMissing(err, from.SecretRef.Optional)
		}
		for k, v := range s.Data {
			data[k] = string(v)
		}
	}
	return data, nil
}

// ignoreMissing returns nil if err is "not found" and the reference is optional. Otherwise it returns err.
func ignoreMissing(err error, optional *bool) error {
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	return err
}

func envValue(
	ctx context.Context,
	p *corev1.Pod,
	spec *corev1.Container,
	from *corev1.EnvVarSource,
	objects Objects,
	node pod.Node,
) (string, bool, error) {
	switch {
	case from.FieldRef != nil:
		v, err := pod.Field(p, from.FieldRef.FieldPath, node)
		return v, true, err
	case from.ResourceFieldRef != nil:
		v, err := pod.ResourceField(p, spec, from.ResourceFieldRef, node)
		return v, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		m, err := objects.ConfigMap(ctx, p.Namespace, ref.Name)
		if err != nil {
			return "", false, ignoreMissing(err, ref.Optional)
		}
		v, ok := m.Data[ref.Key]
		if !ok && (ref.Optional == nil || !*ref.Optional) {
			return "", false, fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", ref.Key, p.Namespace, ref.Name)
		}
		return v, ok, nil
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		s, err := objects.Secret(ctx, p.Namespace, ref.Name)
		if err != nil {
			return "", false, ignoreMissing(err, ref.Optional)
		}
		v, ok := s.Data[ref.Key]
		if !ok && (ref.Optional == nil || !*ref.Optional) {
			return "", false, fmt.Errorf("couldn't find key %v in Secret %v/%v", ref.Key, p.Namespace, ref.Name)
		}
		return string(v), ok, nil
	}
	return "", false, errors.New("a variable's source is of a type that is not supported")
}

// ServiceEnv returns the environment variables for the API server and the services of the pod's namespace. It omits the
// latter if the pod disables service links.
func ServiceEnv(p *corev1.Pod, services []*corev1.Service) []*runtime.KeyValue {
	links := p.Spec.EnableServiceLinks == nil || *p.Spec.EnableServiceLinks
	chosen := map[string]*corev1.Service{}
	for _, s := range services {
		if ip := s.Spec.ClusterIP; ip == "" || ip == corev1.ClusterIPNone || len(s.Spec.Ports) == 0 {
			continue
		}
		if s.Namespace == p.Namespace && links {
			chosen[s.Name] = s
		} else if _, own := chosen[s.Name]; s.Namespace == corev1.NamespaceDefault && s.Name == "kubernetes" && !own {
			chosen[s.Name] = s
		}
	}
	var env []*runtime.KeyValue
	add := func(k, v string) { env = append(env, &runtime.KeyValue{Key: k, Value: []byte(v)}) }
	for _, name := range sortedKeys(chosen) {
		s := chosen[name]
		prefix := strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
		ip := s.Spec.ClusterIP
		add(prefix+"_SERVICE_HOST", ip)
		add(prefix+"_SERVICE_PORT", strconv.Itoa(int(s.Spec.Ports[0].Port)))
		for _, port := range s.Spec.Ports {
			if port.Name != "" {
				add(prefix+"_SERVICE_PORT_"+strings.ToUpper(strings.ReplaceAll(port.Name, "-", "_")),
					strconv.Itoa(int(port.Port)))
			}
		}
		for i, port := range s.Spec.Ports {
			proto := strings.ToLower(string(port.Protocol))
			if proto == "" {
				proto = "tcp"
			}
			number := strconv.Itoa(int(port.Port))
			url := proto + "://" + net.JoinHostPort(ip, number)
			if i == 0 {
				add(prefix+"_PORT", url)
			}
			base := prefix + "_PORT_" + number + "_" + strings.ToUpper(proto)
			add(base, url)
			add(base+"_PROTO", proto)
			add(base+"_PORT", number)
			add(base+"_ADDR", ip)
		}
	}
	return env
}

func expandAll(list []string, values map[string]string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = expand(s, values)
	}
	return out
}

// expand replaces $(NAME) with the variable's value. An unknown name is left unchanged, and $$ becomes a dollar sign.
func expand(s string, values map[string]string) string {
	return replaceReferences(s, func(name string) string {
		if v, ok := values[name]; ok {
			return v
		}
		return "$(" + name + ")"
	})
}

// replaceReferences replaces $(NAME) with the result of of(NAME), and $$ with a dollar sign.
func replaceReferences(s string, of func(name string) string) string {
	if !strings.Contains(s, "$") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '$' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		switch next := s[i+1]; next {
		case '$':
			b.WriteByte('$')
			i++
		case '(':
			end := strings.IndexByte(s[i+2:], ')')
			if end < 0 {
				b.WriteString("$(")
				i++
				continue
			}
			b.WriteString(of(s[i+2 : i+2+end]))
			i += end + 2
		default:
			b.WriteByte('$')
		}
	}
	return b.String()
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// ExpandPath replaces $(NAME) in a path with variables of an environment. It returns an error if a variable is missing
// or empty, because the path would point to another place.
func ExpandPath(path string, env []*runtime.KeyValue) (string, error) {
	values := make(map[string]string, len(env))
	for _, kv := range env {
		values[kv.Key] = string(kv.Value)
	}
	missing := map[string]bool{}
	expanded := replaceReferences(path, func(name string) string {
		if values[name] == "" {
			missing[name] = true
		}
		return values[name]
	})
	if len(missing) > 0 {
		return "", fmt.Errorf("missing value for %s", strings.Join(sortedKeys(missing), ", "))
	}
	return expanded, nil
}
