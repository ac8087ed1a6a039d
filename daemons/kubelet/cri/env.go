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

// maxProgram limits the bytes of a container's environment, and of its command with its arguments. Linux starts no
// program with more, see execve(2). Without the limit, variables that name each other twice would double with each.
const maxProgram = 6 << 20

// Env returns a container's environment: the services' variables, then envFrom, then env. It expands $(NAME) with
// variables that come before. It returns an error if the environment has more than maxProgram bytes.
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
	size := 0
	set := func(k, v string) error {
		old, ok := values[k]
		if !ok {
			order = append(order, k)
			size += len(k)
		}
		values[k] = v
		if size += len(v) - len(old); size > maxProgram {
			return fmt.Errorf("the environment has more than %d bytes with the variable %s", maxProgram, k)
		}
		return nil
	}
	for _, kv := range ServiceEnv(p, services) {
		if err := set(kv.Key, string(kv.Value)); err != nil {
			return nil, err
		}
	}
	for _, from := range spec.EnvFrom {
		data, err := envSource(ctx, p.Namespace, from, objects)
		if err != nil {
			return nil, err
		}
		for _, k := range sortedKeys(data) {
			if err := set(from.Prefix+k, data[k]); err != nil {
				return nil, err
			}
		}
	}
	for _, e := range spec.Env {
		v, err := expand(e.Value, values, maxProgram)
		if err != nil {
			return nil, fmt.Errorf("expand the variable %s: %w", e.Name, err)
		}
		if e.ValueFrom != nil {
			var ok bool
			if v, ok, err = envValue(ctx, p, spec, e.ValueFrom, objects, node); err != nil {
				return nil, err
			} else if !ok {
				continue
			}
		}
		if err := set(e.Name, v); err != nil {
			return nil, err
		}
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
// latter if the pod disables service links. Once the variables have more than maxProgram bytes, it leaves out the
// services that follow; Env refuses so many.
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
	size := 0
	add := func(k, v string) {
		env = append(env, &runtime.KeyValue{Key: k, Value: []byte(v)})
		size += len(k) + len(v)
	}
	for _, name := range sortedKeys(chosen) {
		if size > maxProgram {
			break
		}
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

// expandAll expands the texts of a list, of which the sum may have at most limit bytes.
func expandAll(list []string, values map[string]string, limit int) (out []string, left int, err error) {
	out = make([]string, len(list))
	for i, s := range list {
		if out[i], err = expand(s, values, limit); err != nil {
			return nil, 0, err
		}
		limit -= len(out[i])
	}
	return out, limit, nil
}

// errTooLong means that a text is longer than its limit after its variables are expanded.
var errTooLong = fmt.Errorf("it has more than %d bytes", maxProgram)

// expand replaces $(NAME) with the variable's value. An unknown name is left unchanged, and $$ becomes a dollar sign.
// The result has at most limit bytes.
func expand(s string, values map[string]string, limit int) (string, error) {
	return replaceReferences(s, limit, func(name string) string {
		if v, ok := values[name]; ok {
			return v
		}
		return "$(" + name + ")"
	})
}

// replaceReferences replaces $(NAME) with the result of of(NAME), and $$ with a dollar sign. It returns errTooLong if
// the result has more than limit bytes.
func replaceReferences(s string, limit int, of func(name string) string) (string, error) {
	var b strings.Builder
	for rest := s; rest != ""; {
		at := strings.IndexByte(rest, '$')
		if at < 0 || at+1 == len(rest) {
			at = len(rest)
		}
		part, next := rest[:at], 0
		switch rest = rest[at:]; {
		case rest == "":
		case rest[1] == '$':
			part, next = part+"$", 2
		case rest[1] == '(':
			end := strings.IndexByte(rest, ')')
			if end < 0 { // no reference follows
				part += strings.ReplaceAll(rest, "$$", "$")
				next = len(rest)
				break
			}
			part, next = part+of(rest[2:end]), end+1
		default:
			part, next = part+"$", 1
		}
		if b.Len()+len(part) > limit {
			return "", errTooLong
		}
		b.WriteString(part)
		rest = rest[next:]
	}
	return b.String(), nil
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
	expanded, err := replaceReferences(path, maxProgram, func(name string) string {
		if values[name] == "" {
			missing[name] = true
		}
		return values[name]
	})
	if len(missing) > 0 {
		return "", fmt.Errorf("missing value for %s", strings.Join(sortedKeys(missing), ", "))
	}
	return expanded, err
}
