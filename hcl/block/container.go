package block

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/gocty"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"clusterctl/hcl/config"
)

type containerBlock struct {
	Name       string            `hcl:"name,label"`
	Image      string            `hcl:"image" doc:"Reference of the image, often image.NAME.reference."`
	PullPolicy string            `hcl:"pull_policy,optional" doc:"Always, IfNotPresent or Never." default:"Kubernetes' own"`
	Command    []string          `hcl:"command,optional" doc:"Command that replaces the image's entry point."`
	Args       []string          `hcl:"args,optional" doc:"Its arguments."`
	WorkingDir string            `hcl:"working_dir,optional" doc:"Working directory." default:"the image's"`
	Env        map[string]string `hcl:"env,optional" doc:"Environment variables."`
	SecretEnv  map[string]string `hcl:"secret_env,optional" doc:"Environment variables from Secrets: names of variables to names in secrets, or to \"SECRET/KEY\" of another Secret of the namespace."`
	Ports      map[string]int    `hcl:"ports,optional" doc:"Names of ports to their numbers; services and probes use the names."`
	Requests   map[string]string `hcl:"requests,optional" doc:"Resources to reserve, as { cpu = \"100m\", memory = \"64Mi\" }."`
	Limits     map[string]string `hcl:"limits,optional" doc:"Resources not to exceed."`
	Mounts     map[string]string `hcl:"mounts,optional" doc:"Paths in the container to names of volumes."`
	Readiness  *hcl.Attribute    `hcl:"readiness,optional" doc:"A probe: while it fails, the pod receives no traffic."`
	Liveness   *hcl.Attribute    `hcl:"liveness,optional" doc:"A probe: when it fails, the container is restarted."`
	Startup    *hcl.Attribute    `hcl:"startup,optional" doc:"A probe: until it succeeds, the other probes wait."`
}

func (raw containerBlock) decode(x *Context, b *hcl.Block, volumes []string, secrets map[string]string) (
	c config.Container, diags hcl.Diagnostics) {
	c = config.Container{
		Name: raw.Name, Image: raw.Image, PullPolicy: raw.PullPolicy, Command: raw.Command, Args: raw.Args,
		WorkingDir: raw.WorkingDir,
		Env:        raw.Env, Ports: raw.Ports, Requests: raw.Requests, Limits: raw.Limits, Mounts: raw.Mounts,
	}
	at := func(name string) *hcl.Range { return nestedRange(b, "container", name) }
	if errs := validation.IsDNS1123Label(c.Name); len(errs) > 0 {
		diags = append(diags, newError(at("image"), "Invalid container name", "%q: %s.", c.Name, errs[0]))
	}
	for name, port := range c.Ports {
		for _, e := range append(validation.IsValidPortName(name), validation.IsValidPortNum(port)...) {
			diags = append(diags, newError(at("ports"), "Invalid port", "%s = %d: %s.", name, port, e))
		}
	}
	for what, list := range map[string]map[string]string{"requests": c.Requests, "limits": c.Limits} {
		for name, text := range list {
			if _, err := resource.ParseQuantity(text); err != nil {
				diags = append(diags, newError(at(what), "Invalid quantity",
					"%s = %q is not a quantity, as \"100m\" (a tenth of a processor) or \"64Mi\".", name, text))
			}
		}
	}
	for path, volume := range c.Mounts {
		if !strings.HasPrefix(path, "/") {
			diags = append(diags, newError(at("mounts"), "Invalid mount",
				"%q is not an absolute path: mounts maps paths in the container to volumes.", path))
		}
		if !slices.Contains(volumes, volume) {
			diags = append(diags, newError(at("mounts"), "Unknown volume", "There is no volume %q in this workload.%s",
				volume, Suggest(volume, volumes)))
		}
	}
	for name := range c.Env {
		if errs := validation.IsEnvVarName(name); len(errs) > 0 {
			diags = append(diags, newError(at("env"), "Invalid environment variable", "%q: %s.", name, errs[0]))
		}
	}
	diags = append(diags, raw.decodeSecretEnv(b, secrets, &c)...)
	for _, p := range []struct {
		attr *hcl.Attribute
		into **config.Probe
	}{{raw.Readiness, &c.Readiness}, {raw.Liveness, &c.Liveness}, {raw.Startup, &c.Startup}} {
		if p.attr == nil {
			continue
		}
		probe, more := decodeProbe(x, p.attr, c)
		diags = append(diags, more...)
		*p.into = probe
	}
	return c, diags
}

// decodeSecretEnv decodes the environment variables from Secrets.
func (raw containerBlock) decodeSecretEnv(b *hcl.Block, secrets map[string]string, c *config.Container) (
	diags hcl.Diagnostics) {
	wrong := func(summary, format string, args ...any) {
		diags = append(diags, newError(nestedRange(b, "container", "secret_env"), summary, format, args...))
	}
	for _, name := range slices.Sorted(maps.Keys(raw.SecretEnv)) {
		from := raw.SecretEnv[name]
		secret, key, isOther := strings.Cut(from, "/")
		if !isOther {
			secret, key = "", from
		}
		_, exists := secrets[key]
		switch _, twice := c.Env[name]; {
		case len(validation.IsEnvVarName(name)) > 0:
			wrong("Invalid environment variable", "%q: %s.", name, validation.IsEnvVarName(name)[0])
		case twice:
			wrong("Duplicate environment variable", "%s is also in env.", name)
		case !isOther && !exists:
			wrong("Unknown secret", "secrets has no %q.%s Write \"SECRET/KEY\" for a key of another Secret.", key,
				Suggest(key, slices.Sorted(maps.Keys(secrets))))
		case isOther && (len(validation.IsDNS1123Subdomain(secret)) > 0 || len(validation.IsConfigMapKey(key)) > 0):
			wrong("Invalid secret", "%q is not the name of a Secret and one of its keys, as \"SECRET/KEY\".", from)
		}
		if c.SecretEnv == nil {
			c.SecretEnv = map[string]config.SecretKey{}
		}
		c.SecretEnv[name] = config.SecretKey{Secret: secret, Key: key}
	}
	return diags
}

func decodeProbe(x *Context, a *hcl.Attribute, c config.Container) (*config.Probe, hcl.Diagnostics) {
	v, diags := a.Expr.Value(x.Eval)
	if diags.HasErrors() {
		return nil, diags
	}
	at := a.Expr.Range().Ptr()
	if v.IsNull() {
		return nil, diags
	}
	if !v.Type().IsObjectType() && !v.Type().IsMapType() || !v.IsWhollyKnown() {
		return nil, append(diags, newError(at, "Invalid probe",
			"Write an object, as { http = \"/healthz\", port = \"http\" }."))
	}
	p := &config.Probe{}
	fields := map[string]any{
		"http": &p.HTTP, "tcp": &p.TCP, "command": &p.Command, "port": &p.Port,
		"delay": &p.Delay, "period": &p.Period, "timeout": &p.Timeout, "failures": &p.Failures,
	}
	for it := v.ElementIterator(); it.Next(); {
		k, e := it.Element()
		target, ok := fields[k.AsString()]
		if !ok {
			names := slices.Sorted(maps.Keys(fields))
			diags = append(diags, newError(at, "Unknown field of a probe", "%q is not known.%s The fields are %s.",
				k.AsString(), Suggest(k.AsString(), names), strings.Join(names, ", ")))
			continue
		}
		if err := assign(target, e); err != nil {
			diags = append(diags, newError(at, "Invalid probe", "%s: %v.", k.AsString(), err))
		}
	}
	ways := 0
	for _, set := range []bool{p.HTTP != "", p.TCP, len(p.Command) > 0} {
		if set {
			ways++
		}
	}
	if ways != 1 {
		diags = append(diags, newError(at, "Invalid probe",
			"A probe has exactly one of http = \"/path\", tcp = true and command = [\"…\"]."))
	}
	if ports := slices.Sorted(maps.Keys(c.Ports)); p.Port == "" && len(p.Command) == 0 && len(ports) == 1 {
		p.Port = ports[0]
	} else if p.Port == "" && len(p.Command) == 0 {
		diags = append(diags, newError(at, "Invalid probe", "Say which port to ask, as port = \"http\"."))
	} else if _, named := c.Ports[p.Port]; p.Port != "" && !named && strings.Trim(p.Port, "0123456789") != "" {
		diags = append(diags, newError(at, "Unknown port", "The container has no port named "+
			"%q.%s", p.Port, Suggest(p.Port, ports)))
	}
	return p, diags
}

// assign assigns a value to target, with the same conversion as for an attribute of the target's type.
func assign(target any, v cty.Value) error {
	ty, err := gocty.ImpliedType(target)
	if err != nil {
		return err
	}
	converted, err := convertTo(v, ty)
	if err != nil {
		return err
	}
	if converted.IsNull() {
		return fmt.Errorf("must not be null")
	}
	return gocty.FromCtyValue(converted, target)
}
