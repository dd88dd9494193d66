package report

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/vipwalk/vipwalk/docs"
	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

func schemaText(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := fs.ReadFile(docs.FS, "schema/"+name+".json")
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func compileSchema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemaText(t, name)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(name, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validate(t *testing.T, s *jsonschema.Schema, raw []byte) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(v)
}

// What is printed keeps to the schema. cmd/vipwalk does the same for what its
// scripts print.
func TestOutputKeepsToTheSchema(t *testing.T) {
	s := compileSchema(t, "walkreport")
	for _, file := range reports(t) {
		if err := validate(t, s, []byte(render(t, JSON, load(t, file), Options{}))); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	var tr diagnosis.TraceReport
	unmarshal(t, "testdata/trace/dns.json", &tr)
	var buf bytes.Buffer
	if err := writeJSON(&buf, &tr); err != nil {
		t.Fatal(err)
	}
	if err := validate(t, compileSchema(t, "tracereport"), buf.Bytes()); err != nil {
		t.Error(err)
	}
}

// The schema refuses what the program never prints.
func TestSchemaRefuses(t *testing.T) {
	s := compileSchema(t, "walkreport")
	for name, change := range map[string]func(map[string]any){
		"an unknown field":      func(r map[string]any) { r["extra"] = true },
		"another kind":          func(r map[string]any) { r["kind"] = "TraceReport" },
		"a missing summary":     func(r map[string]any) { delete(r, "summary") },
		"three layers":          func(r map[string]any) { svc := service(r); svc["layers"] = svc["layers"].([]any)[:3] },
		"an unheard-of verdict": func(r map[string]any) { service(r)["verdict"] = "fine" },
		"no evidence": func(r map[string]any) {
			service(r)["diagnoses"].([]any)[0].(map[string]any)["evidence"] = []any{}
		},
		"a code that is none": func(r map[string]any) {
			service(r)["diagnoses"].([]any)[0].(map[string]any)["code"] = "VIP1"
		},
	} {
		raw, err := os.ReadFile("testdata/selector.json")
		if err != nil {
			t.Fatal(err)
		}
		var r map[string]any
		if err := json.Unmarshal(raw, &r); err != nil {
			t.Fatal(err)
		}
		change(r)
		raw, err = json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if validate(t, s, raw) == nil {
			t.Errorf("the schema accepts %s", name)
		}
	}
}

func service(r map[string]any) map[string]any { return r["services"].([]any)[0].(map[string]any) }

// The Go types and the schemas have the same fields, in the same order, and
// agree on which may be absent.
func TestSchemaHasTheFieldsOfTheTypes(t *testing.T) {
	for name, typ := range map[string]reflect.Type{
		"walkreport":  reflect.TypeFor[diagnosis.Report](),
		"tracereport": reflect.TypeFor[diagnosis.TraceReport](),
		"inventory":   reflect.TypeFor[diagnosis.Inventory](),
	} {
		root := ordered(t, schemaText(t, name))
		compareType(t, name, typ, root, root)
	}
}

func compareType(t *testing.T, at string, typ reflect.Type, node, root *object) {
	t.Helper()
	if ref, ok := node.get("$ref").(string); ok {
		node = root.sub("$defs").sub(strings.TrimPrefix(ref, "#/$defs/"))
	}
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch {
	case typ == reflect.TypeFor[time.Time]():
		return
	case typ.Kind() == reflect.Slice:
		compareType(t, at+"[]", typ.Elem(), node.sub("items"), root)
		return
	case typ.Kind() != reflect.Struct:
		return
	}
	var fields, always []string
	for _, f := range jsonFields(typ) {
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields = append(fields, name)
		if !strings.Contains(opts, "omitempty") && !strings.Contains(opts, "omitzero") {
			always = append(always, name)
		}
		if prop := node.sub("properties").sub(name); prop != nil {
			compareType(t, at+"."+name, f.Type, prop, root)
		}
	}
	if diff := cmp.Diff(fields, node.sub("properties").keys); diff != "" {
		t.Errorf("%s: fields (-%s +schema):\n%s", at, typ, diff)
	}
	var required []string
	for _, v := range node.get("required").([]any) {
		required = append(required, v.(string))
	}
	slices.Sort(required)
	slices.Sort(always)
	if diff := cmp.Diff(always, required); diff != "" {
		t.Errorf("%s: fields that are always there (-%s +schema):\n%s", at, typ, diff)
	}
	if node.get("additionalProperties") != false {
		t.Errorf("%s: additionalProperties is not false", at)
	}
}

// jsonFields are a struct's fields as encoding/json sees them, embedded
// structs opened.
func jsonFields(typ reflect.Type) []reflect.StructField {
	var out []reflect.StructField
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Anonymous && f.Tag.Get("json") == "" {
			out = append(out, jsonFields(f.Type)...)
			continue
		}
		out = append(out, f)
	}
	return out
}

// object is a JSON object that keeps the order of its keys.
type object struct {
	keys   []string
	values map[string]any
}

func (o *object) get(key string) any { return o.values[key] }

func (o *object) sub(key string) *object {
	sub, _ := o.values[key].(*object)
	return sub
}

func ordered(t *testing.T, raw []byte) *object {
	t.Helper()
	v, err := decodeOrdered(json.NewDecoder(bytes.NewReader(raw)))
	if err != nil {
		t.Fatal(err)
	}
	return v.(*object)
}

func decodeOrdered(d *json.Decoder) (any, error) {
	tok, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch tok {
	case json.Delim('{'):
		o := &object{values: map[string]any{}}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := decodeOrdered(d)
			if err != nil {
				return nil, err
			}
			o.keys = append(o.keys, key.(string))
			o.values[key.(string)] = v
		}
		_, err := d.Token()
		return o, err
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := decodeOrdered(d)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	}
	return tok, nil
}

func TestReportsOfTestdataAreReports(t *testing.T) {
	if n := len(reports(t)); n < 7 {
		t.Errorf("only %d reports in %s", n, filepath.Join("pkg", "report", "testdata"))
	}
}
