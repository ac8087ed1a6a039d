package compose

import (
	"maps"

	"github.com/compose-spec/compose-go/v2/types"
)

// probes converts the health check to probes with the defaults of Compose.
func (w *workload) probes(c map[string]any) {
	check := w.below("healthcheck")
	isDisabled := check.is("disable")
	v := check.take("test")
	var test types.HealthCheckTest
	if v != nil {
		if err := test.DecodeMapstructure(v); err != nil {
			check.report("test", "%v", err)
		}
	}
	if isDisabled || len(test) > 0 && test[0] == "NONE" { // Kubernetes does not use the check of the image either
		return
	}
	if len(test) == 0 {
		if len(check.fields) > 0 {
			w.attributes.report("healthcheck", "the check of the image is not known: add test")
		}
		return
	}
	var command []any
	if test[0] == "CMD-SHELL" {
		command = append(command, "/bin/sh", "-c")
	}
	for _, word := range test[1:] {
		command = append(command, word)
	}
	probe := map[string]any{"exec": map[string]any{"command": command}, "periodSeconds": int64(30),
		"timeoutSeconds": int64(30), "failureThreshold": int64(3)}
	for from, to := range map[string]string{"interval": "periodSeconds", "timeout": "timeoutSeconds"} {
		if v := seconds(check.take(from)); v > 0 {
			probe[to] = v
		}
	}
	if n := number(check.take("retries")); n > 0 {
		probe["failureThreshold"] = n
	}
	c["readinessProbe"], c["livenessProbe"] = probe, probe
	if grace := seconds(check.take("start_period")); grace > 0 {
		every := seconds(check.take("start_interval"))
		if every == 0 {
			every = 5
		}
		startup := maps.Clone(probe)
		startup["periodSeconds"] = every
		startup["failureThreshold"] = (grace+every-1)/every + number(probe["failureThreshold"])
		c["startupProbe"] = startup
	} else if check.fields["start_interval"] != nil {
		check.refuse("start_interval", "it has no effect without start_period")
	}
	check.reportRest()
}

// hooks converts the commands after the start of a container, and before its end.
func (w *workload) hooks(c map[string]any) {
	lifecycle := map[string]any{}
	for name, field := range map[string]string{"post_start": "postStart", "pre_stop": "preStop"} {
		for i, hook := range w.items(name) {
			var command types.ShellCommand
			err := command.DecodeMapstructure(hook.take("command"))
			switch {
			case err != nil:
				hook.report("command", "%v", err)
			case i > 0:
				hook.report("command", "Kubernetes runs one command: join them in a script")
			case len(command) > 0:
				var words []any
				for variable, v := range entries(pairs(hook.take("environment"))) {
					words = append(words, variable+"="+asText(v))
				}
				if len(words) > 0 {
					words = append([]any{"env"}, words...)
				}
				for _, word := range command {
					words = append(words, word)
				}
				lifecycle[field] = map[string]any{"exec": map[string]any{"command": words}}
			}
			for _, option := range []string{"user", "working_dir", "privileged"} {
				if v := hook.fields[option]; !hasNoEffect(option, v) {
					hook.refuse(option, "hooks run as their container does")
				}
			}
			hook.reportRest()
		}
	}
	if len(lifecycle) > 0 {
		c["lifecycle"] = lifecycle
	}
}
