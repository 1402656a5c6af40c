// One call of OpenAI's Node SDK; what came of it as one JSON line. Run by test_openai_node.py.
import OpenAI from "openai";

const { baseURL, apiKey, call, body } = JSON.parse(process.argv[2]);
const client = new OpenAI({ baseURL, apiKey });
const request = { model: "gpt-5.4-mini", messages: [{ role: "user", content: "Where does it hurt?" }], ...body };

const calls = {
  async unary() {
    const { data, request_id } = await client.chat.completions.create(request).withResponse();
    return { text: data.choices[0].message.content, usage: data.usage, requestId: request_id };
  },
  async stream() {
    const seen = { text: "", usage: null, chunks: 0 };
    try {
      for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
        seen.text += chunk.choices[0]?.delta?.content ?? "";
        seen.usage = chunk.usage ?? seen.usage;
        seen.chunks += 1;
      }
    } catch (error) {
      throw Object.assign(error, { seen });
    }
    return seen;
  },
  async models() {
    const models = [];
    for await (const model of client.models.list()) models.push(model.id);
    return { models };
  },
};

let result;
try {
  result = await calls[call]();
} catch (error) {
  result = {
    error: error.constructor.name,
    isApiError: error instanceof OpenAI.APIError,
    status: error.status ?? null,
    code: error.code ?? null,
    type: error.type ?? null,
    param: error.param ?? null,
    message: error.message,
    seen: error.seen ?? null,
  };
}
console.log(JSON.stringify(result));
