package load

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty/function"

	"clusterctl/hcl/block"
)

//go:embed reference.md
var referenceText string

// Reference returns the reference of the language, docs/language.md. It is reference.md with the blocks and functions
// of the code inserted.
func Reference() string {
	all := Functions(".", time.Time{})
	var list strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f := all[name]
		fmt.Fprintf(&list, "| `%s(%s)` | %s |\n", name, strings.Join(parameterNames(f), ", "), functionMeanings[name])
	}
	return strings.NewReplacer("{{blocks}}\n", block.Reference(), "{{functions}}\n",
		list.String()).Replace(referenceText)
}

// FunctionMeaning returns the signature and the description of a function.
func FunctionMeaning(name string) (call, meaning string) {
	f, ok := Functions(".", time.Time{})[name]
	if !ok {
		return "", ""
	}
	return name + "(" + strings.Join(parameterNames(f), ", ") + ")", functionMeanings[name]
}

// FunctionNames returns the sorted names of the functions.
func FunctionNames() []string { return slices.Sorted(maps.Keys(functionMeanings)) }

func parameterNames(f function.Function) (params []string) {
	for _, p := range f.Params() {
		params = append(params, p.Name)
	}
	if v := f.VarParam(); v != nil {
		params = append(params, v.Name+"…")
	}
	return params
}

// functionMeanings has the descriptions of the functions.
var functionMeanings = map[string]string{
	"base64gzip": "Text, compressed with gzip, as base64.", "base64gunzip": "Text from base64 of what gzip has " +
		"compressed.",
	"bcrypt": "A hash of a password by bcrypt, with another salt each time; the cost is 10 when there is " +
		"none.",
	"ephemeralasnull":  "The value itself: no value of this language is ephemeral.",
	"filebase64sha256": "SHA-256 digest of a file, as base64.", "filebase64sha512": "SHA-512 digest of a file, as " +
		"base64.",
	"issensitive": "Whether a value is sensitive.",
	"matchkeys":   "Elements of a list whose keys, in a second list, are in a third.",
	"plantimestamp": "The time of the plan, in RFC 3339. A saved plan is applied with the time at which it was " +
		"made.",
	"rsadecrypt":       "Text from base64 that was encrypted for an RSA key, PKCS #1 v1.5, by the private key in PEM.",
	"templatestring":   "The text that a reference leads to, as a template with these variables.",
	"textdecodebase64": "Text from base64 of bytes in a character encoding.",
	"textencodebase64": "Text in a character encoding, as base64.",
	"timecmp":          "-1, 0 or 1: how one time of RFC 3339 compares with another.",
	"timestamp":        "The time of the run, in RFC 3339. What has it in it changes with every run.",
	"transpose":        "A map of lists, with keys and elements exchanged.",
	"type":             "The type of a value, as text.",
	"urldecode":        "Text without the escapes of URLs.",
	"uuid":             "A random UUID, another one in every run.",
	"abs":              "A number without its sign.", "ceil": "The next whole number " +
		"upwards.", "floor": "The next whole number downwards.", "log": "Logarithm of a number to a base.",
	"max": "The largest number.", "min": "The smallest number.", "parseint": "A whole number from text in a " +
		"base.", "pow": "A power.", "signum": "-1, 0 or 1, by the sign.",
	"chomp": "Text without the line ends at its end.", "format": "Text by a format with %s, %d, %q and so " +
		"on.", "formatlist": "format for every element of lists.", "indent": "Text with all lines but the first " +
		"indented.",
	"join": "Elements as one text with a separator between.", "lower": "Text in lower case.",
	"upper": "Text in upper case.", "title": "Text with words capitalized.",
	"regex": "What a regular expression finds first; its groups when it has " +
		"any.", "regexall": "Everything that a regular expression finds.", "split": "The parts of a text between " +
		"separators.",
	"strrev": "Text from its end to its start.", "substr": "A part of a text, by offset and " +
		"length.", "trim": "Text without these characters at both ends.", "trimprefix": "Text without this start.",
	"trimsuffix": "Text without this end.", "trimspace": "Text without white space at both ends.",
	"chunklist": "A list cut into lists of a size.", "coalesce": "The first argument that is neither null nor an " +
		"empty text.", "coalescelist": "The first list that is not empty.", "compact": "A list without empty texts.",
	"concat": "Lists one after the other.", "contains": "Whether a value is in a " +
		"list.", "distinct": "A list without repetitions.", "element": "An element of a list by its index, beginning " +
		"again past the end.",
	"flatten": "Lists inside a list as one list.", "index": "Where a value is in a " +
		"list.", "keys": "The keys of a map, sorted.", "values": "The values of a map, by sorted keys.",
	"merge": "Maps as one; the later is the stronger.", "range": "Numbers from a start to before an end, by a " +
		"step.", "reverse": "A list from its end to its start.",
	"setintersection": "What is in all sets.", "setproduct": "All combinations of elements of " +
		"sets.", "setsubtract": "What is in one set and not in another.", "setunion": "What is in any of the sets.",
	"slice": "A part of a list, from an index to before another.", "sort": "Texts in order.",
	"zipmap":    "A map from a list of keys and a list of values.",
	"csvdecode": "A list of objects from CSV with a head line.", "jsondecode": "A value from JSON.",
	"jsonencode": "A value as JSON.",
	"formatdate": "A time of RFC 3339 in a format, as YYYY-MM-DD.", "timeadd": "A time and a duration later.",
	"abspath": "The path from the root.", "basename": "The last part of a " +
		"path.", "dirname": "A path without its last part.", "pathexpand": "A path with ~ as your home.",
	"alltrue": "Whether all elements are true.", "anytrue": "Whether any element is " +
		"true.", "one": "The only element of a list, or null when there is none.", "sum": "The sum of the elements.",
	"base64decode": "Text from base64.", "base64encode": "Text as base64.", "base64sha256": "SHA-256 digest of a " +
		"text, as base64.", "base64sha512": "SHA-512 digest of a text, as base64.",
	"md5": "MD5 digest of a text, in hex.", "sha1": "SHA-1 digest of a text, in " +
		"hex.", "sha256": "SHA-256 digest of a text, in hex.", "sha512": "SHA-512 digest of a text, in " +
		"hex.", "uuidv5": "UUID of a name in a namespace.",
	"can": "Whether an expression can be evaluated.", "try": "The first of the expressions that can be evaluated.",
	"cidrhost": "Address number n of a network.", "cidrnetmask": "Mask of an IPv4 " +
		"network.", "cidrsubnet": "A part of a network: so many more bits, and their " +
		"number.", "cidrsubnets": "Parts of a network, one after the other, by how many more bits each has.",
	"startswith": "Whether a text begins with another.", "endswith": "Whether a text ends with " +
		"another.", "strcontains": "Whether a text is in another.", "replace": "A text with one part replaced by " +
		"another; a part between slashes is a regular expression.",
	"file": "Content of a text file.", "filebase64": "Content of a file, as " +
		"base64.", "fileexists": "Whether there is a file.", "fileset": "Files of a folder that match a pattern, " +
		"which has `*`, `?`, `[a-z]`, `{a,b}` and `**` for any number of " +
		"folders.", "templatefile": "A file as a template with these variables.",
	"filemd5": "MD5 digest of a file, in hex.", "filesha1": "SHA-1 digest of a file, in " +
		"hex.", "filesha256": "SHA-256 digest of a file, in hex.", "filesha512": "SHA-512 digest of a file, in hex.",
	"length": "How many elements or characters there are.", "lookup": "An element of a map, or a default.",
	"sensitive": "The value, not to be shown, nor what is made of it.", "nonsensitive": "A sensitive value, or what " +
		"is made of one, that may be shown.",
	"tobool": "Converted to bool.", "tolist": "Converted to a list.", "tomap": "Converted to a map.",
	"tonumber": "Converted to a number.", "toset": "Converted to a set.", "tostring": "Converted to a string.",
	"urlencode": "A text for use in a URL.", "yamldecode": "A value from YAML.", "yamlencode": "A value as YAML.",
}
