package compose

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
)

// container converts the attributes that each container of a pod has.
func (w *workload) container(a *attributes, name string) map[string]any {
	c := map[string]any{"name": name, "image": a.take("image")}
	if c["image"] == nil {
		c["image"] = w.name
		a.report("image", "there is none: build the image, push it, and name it here")
	}
	w.command(a, c)
	w.environment(a, c, name)
	if dir := a.take("working_dir"); dir != nil {
		c["workingDir"] = dir
	}
	policies := map[string]string{"always": "Always", "never": "Never", "missing": "IfNotPresent"}
	if policy, ok := policies[asText(a.fields["pull_policy"])]; ok {
		a.drop("pull_policy")
		c["imagePullPolicy"] = policy
	}
	if a.fields["pull_policy"] != nil {
		a.refuse("pull_policy", "%s", reason("pull_refresh_after"))
	}
	security := map[string]any{}
	permissions(a, security)
	if len(security) > 0 {
		c["securityContext"] = security
	}
	limits(a, c)
	w.mounts(a, c)
	return c
}

// command converts the entry point and its arguments. An entry point replaces both those of the image, as it does in
// Kubernetes.
func (w *workload) command(a *attributes, c map[string]any) {
	for _, row := range [][2]string{{"entrypoint", "command"}, {"command", "args"}} {
		v := a.take(row[0])
		var words types.ShellCommand
		if err := words.DecodeMapstructure(v); err != nil {
			a.report(row[0], "%v", err)
			continue
		}
		var list []any
		for _, word := range words {
			list = append(list, escape(word))
		}
		if len(list) > 0 {
			c[row[1]] = list
		} else if v != nil {
			a.report(row[0], "Kubernetes cannot clear that of the image")
		}
	}
}

// escape returns a text that Kubernetes, which replaces $(NAME) and takes $$ for a dollar sign, leaves as it was.
func escape(text string) string {
	var out strings.Builder
	for i := range len(text) {
		if text[i] == '$' && i+1 < len(text) && (text[i+1] == '$' || text[i+1] == '(') {
			out.WriteByte('$')
		}
		out.WriteByte(text[i])
	}
	return out.String()
}

// environment converts variables. Those of files are in a Secret.
func (w *workload) environment(a *attributes, c map[string]any, name string) {
	var env []any
	for variable, v := range entries(pairs(a.take("environment"))) {
		if v == nil {
			a.report("environment", "the variable %s is not set: set it, or use -env", variable)
			continue
		}
		entry := map[string]any{"name": variable}
		if text := asText(v); text != "" { // absent means empty
			entry["value"] = escape(text)
		}
		env = append(env, entry)
	}
	if len(env) > 0 {
		c["env"] = env
	}
	data := map[string]any{}
	for _, file := range a.items("env_file") {
		path, format := file.text("path"), file.text("format")
		isRequired := file.take("required")
		if isRequired != nil && asText(isRequired) == "false" && !exists(path) {
			continue
		}
		variables, err := w.readVariables(path, format)
		if err != nil {
			file.report("path", "%v", err)
		}
		for variable, v := range variables {
			data[variable] = v
		}
		file.reportRest()
	}
	if len(data) == 0 {
		return
	}
	secret := toLabel(name + "-env")
	w.add(a.at("env_file"), map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": w.project.meta(secret),
		"stringData": data})
	c["envFrom"] = []any{map[string]any{"secretRef": map[string]any{"name": secret}}}
}

// permissions converts the user and what the container may do.
func permissions(a *attributes, security map[string]any) {
	if v := a.text("user"); v != "" {
		user, group, hasGroup := strings.Cut(v, ":")
		uid, err := strconv.ParseInt(user, 10, 32)
		gid, groupErr := strconv.ParseInt(group, 10, 32)
		if err != nil || hasGroup && groupErr != nil {
			a.report("user", "Kubernetes needs numbers instead of %q", v)
		} else if security["runAsUser"] = uid; hasGroup {
			security["runAsGroup"] = gid
		}
	}
	capabilities := map[string]any{}
	for from, to := range map[string]string{"cap_add": "add", "cap_drop": "drop"} {
		var list []any
		for _, v := range asList(a.take(from)) {
			list = append(list, strings.TrimPrefix(strings.ToUpper(asText(v)), "CAP_"))
		}
		if len(list) > 0 {
			capabilities[to] = list
		}
	}
	if len(capabilities) > 0 {
		security["capabilities"] = capabilities
	}
	if a.is("privileged") {
		security["privileged"] = true
	}
	if a.is("read_only") {
		security["readOnlyRootFilesystem"] = true
	}
	selinux := map[string]any{}
	for _, v := range asList(a.take("security_opt")) {
		key, value, _ := strings.Cut(strings.Replace(asText(v), "=", ":", 1), ":")
		part, label, _ := strings.Cut(value, ":")
		switch {
		case key == "no-new-privileges":
			security["allowPrivilegeEscalation"] = value == "false"
		case key == "seccomp" && value == "unconfined":
			security["seccompProfile"] = map[string]any{"type": "Unconfined"}
		case key == "apparmor" && value == "unconfined":
			security["appArmorProfile"] = map[string]any{"type": "Unconfined"}
		case key == "label" && label != "":
			selinux[part] = label
		default:
			a.report("security_opt", "%q has no counterpart in Kubernetes", asText(v))
		}
	}
	if len(selinux) > 0 {
		security["seLinuxOptions"] = selinux
	}
}

// limits converts the resources that the attributes of a container limit. Those of deploy replace them later.
func limits(a *attributes, c map[string]any) {
	cpus := cpu(a.take("cpus"))
	if count := cpu(a.take("cpu_count")); cpus == "" {
		cpus = count
	}
	if quota := number(a.fields["cpu_quota"]); quota > 0 {
		period := number(a.take("cpu_period"))
		if period <= 0 {
			period = 100_000 // microseconds, the default of the kernel
		}
		if a.drop("cpu_quota"); cpus == "" {
			cpus = cpu(float64(quota) / float64(period))
		}
	} else if hasNoEffect("cpu_quota", a.fields["cpu_quota"]) || quota < 0 || asText(a.fields["cpu_quota"]) == "0" {
		a.drop("cpu_quota")
	}
	setResource(c, "limits", "cpu", cpus)
	setResource(c, "limits", "memory", memory(a.take("mem_limit")))
	setResource(c, "requests", "memory", memory(a.take("mem_reservation")))
}

// setResource sets a resource unless the quantity is "".
func setResource(c map[string]any, list, name, quantity string) {
	if quantity == "" {
		return
	}
	all, _ := c["resources"].(map[string]any)
	if all == nil {
		all = map[string]any{}
		c["resources"] = all
	}
	quantities, _ := all[list].(map[string]any)
	if quantities == nil {
		quantities = map[string]any{}
		all[list] = quantities
	}
	quantities[name] = quantity
}

// cpu returns a number of processors as a quantity.
func cpu(v any) string {
	n, err := strconv.ParseFloat(asText(v), 64)
	switch {
	case err != nil || n <= 0 || n > 1<<20:
		return ""
	case n == math.Trunc(n):
		return fmt.Sprint(int64(n))
	}
	return fmt.Sprintf("%dm", int64(math.Ceil(n*1000)))
}

// memory returns a number of bytes as a quantity.
func memory(v any) string {
	n := size(v)
	switch {
	case n <= 0:
		return ""
	case n%(1<<20) == 0:
		return fmt.Sprintf("%dMi", n>>20)
	}
	return fmt.Sprint(n)
}
