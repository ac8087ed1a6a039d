package support

import (
	"fmt"
	"path"
	"strings"
)

// RedactObject hides an object's secrets in place: known values, values that look like secrets, and values of
// variables, fields and flags whose names suggest a secret. It must run before YAML encoding, which folds and indents
// values.
func RedactObject(o map[string]any, redactor *Redactor) {
	if name, ok := o["name"].(string); ok && isSecretName(name) {
		if value, ok := o["value"]; ok && !isHarmlessValue(fmt.Sprint(value)) {
			o["value"] = hiddenText
		}
	}
	for field, value := range o {
		if text, ok := value.(string); ok && isSecretField(field) && !isHarmlessValue(text) {
			o[field] = hiddenText
			continue
		}
		o[field] = hideValue(value, redactor)
	}
}

func hideValue(value any, redactor *Redactor) any {
	switch v := value.(type) {
	case map[string]any:
		RedactObject(v, redactor)
	case []any:
		for i, item := range v {
			if text, ok := item.(string); ok && i > 0 && followsSecretFlag(v[i-1], text) {
				v[i] = hiddenText
				continue
			}
			if text, ok := item.(string); ok {
				if shown, found := hideArgument(v[:i], text); found {
					v[i] = shown
					continue
				}
			}
			v[i] = hideValue(item, redactor)
		}
	case string:
		return redactor.Hide(Redact(v))
	case int64, float64:
		if text := fmt.Sprint(v); redactor.Hide(text) == hiddenText {
			return hiddenText
		}
	}
	return value
}

// passwordFlags maps a program to its flag whose next argument is a password.
var passwordFlags = map[string]string{
	"sshpass": "-p", "redis-cli": "-a", "valkey-cli": "-a", "keydb-cli": "-a", "zip": "-P", "unzip": "-P",
	"sqlcmd": "-P", "bcp": "-P",
	"ldapsearch": "-w", "ldapmodify": "-w", "ldapadd": "-w", "ldapdelete": "-w", "ldapwhoami": "-w",
	"mongo": "-p", "mongosh": "-p", "mongodump": "-p", "mongorestore": "-p", "mongoexport": "-p", "mongoimport": "-p",
	"docker": "-p", "podman": "-p", "nerdctl": "-p", "crane": "-p", "skopeo": "-p", "helm": "-p", "oras": "-p",
}

// hideArgument returns an argument with its password hidden, and reports whether it has a password. It recognizes
// -pPASSWORD, the argument of a flag in passwordFlags, and USER:PASSWORD of curl. before are the preceding arguments.
func hideArgument(before []any, text string) (string, bool) {
	if rest, ok := strings.CutPrefix(text, "-p"); ok && rest != "" && !strings.ContainsAny(rest, "=- ") &&
		!isFlagOfP(rest) {
		return "-p" + hiddenText, true
	}
	if len(before) == 0 || strings.HasPrefix(text, "-") || isHarmlessValue(text) || isFlagOfP(text) {
		return "", false
	}
	for i, item := range before {
		program, ok := item.(string)
		if !ok {
			continue
		}
		program = path.Base(program)
		switch flag := before[len(before)-1]; {
		case i == len(before)-1:
		case flag == passwordFlags[program]:
			return hiddenText, true
		case program == "curl" && (flag == "-u" || flag == "-U" || flag == "--user" || flag == "--proxy-user"):
			if user, _, exists := strings.Cut(text, ":"); exists {
				return user + ":" + hiddenText, true
			}
		}
	}
	return "", false
}

// followsSecretFlag reports whether an argument is the secret value of the preceding flag.
func followsSecretFlag(before any, value string) bool {
	flag, ok := before.(string)
	return ok && strings.HasPrefix(flag, "-") && !strings.ContainsAny(flag, "= ") && isSecretName(flag) &&
		!strings.HasPrefix(value, "-") && !isHarmlessValue(value)
}
