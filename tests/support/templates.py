"""Chat templates that tests use."""

from weavegen.kernel.template import Template

CHATML = Template(
    block_open="<|im_start|>user\n", block_close="<|im_end|>\n<|im_start|>assistant\n", first_user="<|im_start|>user\n"
)
MISTRAL = Template(
    block_open="<s> [INST] ",
    block_close=" [/INST]",
    first_system="<s> [INST] ",
    after_system="\n\n",
    system_in_user=True,
    first_user="<s> [INST] ",
    user_open=" [INST] ",
    user_close=" [/INST]",
    assistant_open="",
    reply_open="",
    assistant_close="</s>",
)
