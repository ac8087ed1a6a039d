package support

import (
	"regexp"
	"strings"
)

// hidden stands for what was taken out.
const hidden = "(hidden)"

// patterns are what secrets look like wherever they stand.
var patterns = []*regexp.Regexp{
	// private keys, as PEM and on one line of JSON or YAML
	regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(-----END [A-Z ]*PRIVATE KEY-----|\z)`),
	// the same in base64, as kubeconfigs have it: LS0tLS1CRUdJTi is "-----BEGIN "
	regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/=]{40,}`),
	// tokens of service accounts and of whoever speaks OpenID
	regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`),
	// bootstrap tokens
	regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`),
	regexp.MustCompile(`AGE-SECRET-KEY-1[0-9A-Z]+`),
}

// fields are names whose value is hidden, in JSON, YAML, flags and headers.
var fields = regexp.MustCompile(`(?i)((?:password|passwd|passphrase|client-key-data|secret[_-]?key|api[_-]?key|access[_-]?key|auth[_-]?token|\btoken)["']?\s*[:=]\s*["']?)([^\s"',}]{4,})`)

var bearer = regexp.MustCompile(`(?i)((?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{12,}`)

// Redact hides what looks like a secret.
func Redact(text string) string {
	for _, p := range patterns {
		text = p.ReplaceAllString(text, hidden)
	}
	text = bearer.ReplaceAllString(text, "${1}"+hidden)
	return fields.ReplaceAllStringFunc(text, func(found string) string {
		parts := fields.FindStringSubmatch(found)
		if strings.HasPrefix(parts[2], hidden) {
			return found
		}
		return parts[1] + hidden
	})
}

// Known hides values that are known to be secret. Those too short to be told from
// ordinary words stay.
func Known(text string, secrets []string) string {
	for _, s := range secrets {
		if len(s) >= 6 {
			text = strings.ReplaceAll(text, s, hidden)
		}
	}
	return text
}
